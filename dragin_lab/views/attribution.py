"""What each retrieval was good for, as a page and a figure; and the marks of a trace's words, for other pages."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from dragin_lab.study.attribution import Attribution, holds_value, is_attributed
from dragin_lab.trace.trace import Trace
from dragin_lab.views import theme
from dragin_lab.views.facts import clip, count, esc, num, short
from dragin_lab.views.pages import Page, render

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = 250  # words that stand on the axis of the figure
_COLOURS = 6  # of passages, after which they begin again; the number tells them apart


def find_marks(trace: Trace) -> pd.DataFrame:
    """``Attribution.words`` of a trace; no rows where it is not attributed, or was changed since."""
    return Attribution(trace).words if is_attributed(trace) else pd.DataFrame()


def mark_word(word: Any) -> tuple[str, str]:
    """The HTML before and after a word, a row of ``Attribution.words``; ("", "") for a known one."""
    if word.mark == "known":
        return "", ""
    if word.mark == "guess":
        return '<span class="guess" data-i="a guess: neither known nor from a passage">', "</span>"
    about = f"from passage {word.passage} of step {word.retrieval}: {num(word.nats, 1)} nats"
    unsure = "" if word.sure else " unsure"
    opening = f'<span class="from c{word.passage % _COLOURS}{unsure}" data-i="{esc(about)}">'
    return opening, f'<sup aria-label="from passage {word.passage}">{word.passage}</sup></span>'


def overview_marks(trace: Trace) -> dict[tuple[int, str, int], str]:
    """What stands on the words of a trace's overview, by (step, source, token), from 1.

    The number of the passage that a word comes from, with "?" where the model was not sure of it; "~" is a guess.
    """
    words, marks = find_marks(trace), dict[tuple[int, str, int], str]()
    texts = {(step.index + 1, name): text for step in trace.steps for name, text, _ in step.texts}
    for word in words[words["step"].notna()].itertuples() if len(words) else ():
        tokens = (texts[word.step, word.source].offsets[:, 0] == word.start).nonzero()[0]
        sign = {"known": "", "guess": "~", "passage": f"{word.passage}{'?' * (not word.sure)}"}[word.mark]
        if sign and len(tokens):
            marks[int(word.step), word.source, int(tokens[-1]) + 1] = sign
    return marks


def attribution_page(source: Attribution) -> Page:
    """An attribution as a page: the answer's words by the passage that they come from, then what each passage gave."""
    trace, record = source.trace, source.record
    marks, used = source.words["mark"].value_counts(), int(source.retrievals["used"].sum())
    shares = [f"{marks.get(name, 0)} {what}" for name, what in _COUNTED.items()]
    inexact = [text for text in record.texts if not text.exact]
    rows = [
        ("retrievals", f"{used} of {len(source.retrievals)} used"),
        ("words", ", ".join(shares)),
        ("bounds", f"known from p {short(record.known)} on, a passage's from a gain of {short(record.least)} nats on"),
    ]
    rows += [("not exact", f"in {count(len(inexact), 'text')} each passage was left out once: too many")] * bool(
        inexact
    )
    inner = render(
        "attribution.html", trace=trace, rows=rows, answer=Markup("".join(_draw_words(source))),
        known=short(record.known), retrievals=list(_list_retrievals(source)),
    )  # fmt: skip
    return Page(trace.question.text, inner, write_attribution(source))


_COUNTED = {"known": "known", "passage": "from a passage", "guess": "guessed"}


def _draw_words(source: Attribution) -> Iterator[str]:
    """The answer, text by text, with ◆ where passages came in."""
    came = set[int]()
    for _, words in source.words.groupby(["step", "source"], sort=False, dropna=False):
        first = words.iloc[0]
        new = [n for n in source.retrievals["step"] if pd.notna(first["step"]) and n < first["step"] and n not in came]
        new += [first["step"]] * (first["source"] == "continuation" and first["step"] in [*source.retrievals["step"]])
        came.update(new)
        yield "".join(f'<bdi class="tag ok">◆ {n}</bdi>' for n in dict.fromkeys(new))
        yield '<bdi class="tag dim">asked for the answer</bdi>' if first["source"] == "extraction" else ""
        for word in words.itertuples():
            opening, closing = mark_word(word)
            yield f"{opening}{esc(word.word)}{closing} "


def _list_retrievals(source: Attribution) -> Iterator[dict[str, Any]]:
    golds = source.trace.question.golds
    for one in source.retrievals.itertuples():
        found = "" if pd.isna(one.found) else ("found it, " if one.found else "did not find it, ")
        yield {
            "step": one.step,
            "query": one.query,
            "verdict": f"{found}{f'used passage {one.which}' if one.used else 'not used'}",
            "passages": [
                {
                    "number": row.number, "title": row.title, "text": row.text, "words": row.words, "nats": row.nats,
                    "same": None if pd.isna(row.same) else row.same,
                    "gold": any(holds_value(row.text, gold) for gold in golds),
                }
                for row in source.passages.rename(columns={"same as": "same"}).itertuples()
                if row.retrieval == one.step
            ],
        }  # fmt: skip


def write_attribution(source: Attribution) -> str:
    """The same as text: word[2] is from passage 2, word~ a guess."""
    shown = {"known": "", "guess": "~"}
    words = (f"{word.word}{shown.get(word.mark, f'[{word.passage}]')}" for word in source.words.itertuples())
    lines = [source.trace.question.text, " ".join(words)]
    for one in _list_retrievals(source):
        lines.append(f"◆{one['step']} {one['verdict']}: {clip(one['query'], 100)[0]}")
        lines += [f"   [{p['number']}] {p['title']}: {p['words'] or '(no word)'}" for p in one["passages"]]
    return "\n".join(lines) + "\n"


def plot_attribution(source: Attribution) -> go.Figure:
    """What each passage gave to each word, in nats, one bar over the other; below 0 it made the word less likely."""
    numbers = [name for name in source.tokens if name.startswith("passage ")]
    words = source.tokens.groupby(["step", "source", "word"], sort=False, dropna=False)
    nats = words[numbers].sum()
    labels = [f"{place} {clip(text.strip(), 18)[0]}" for place, text in enumerate(words["text"].agg("".join), 1)]
    if not numbers:
        return theme.message(source.trace.question.text, "No passage was in view of what was kept.")
    figure = go.Figure()
    for place, name in enumerate(numbers):
        pairs = zip(labels, nats[name], strict=True)
        hover = [f"{theme.label(label)}<br>{name}: {num(value, 2)} nats" for label, value in pairs]
        look = {"color": theme.COLOURS[place % len(theme.COLOURS)], "pattern": {"shape": _SHAPES[place % len(_SHAPES)]}}
        figure.add_bar(x=labels[:WORDS], y=nats[name][:WORDS], name=name, marker=look, customdata=hover[:WORDS])
    more = f" (the first {WORDS} of {len(labels)} words)" if len(labels) > WORDS else ""
    ticks = {
        "tickvals": labels[:WORDS],
        "ticktext": [theme.clip_label(one.split(" ", 1)[1], 18) for one in labels[:WORDS]],
    }
    return theme.finish(
        figure, source.trace.question.text + more, 340, barmode="relative", xaxis={"tickangle": -60, **ticks},
        yaxis_title="nats", legend=theme.BELOW, showlegend=True,
    )  # fmt: skip


def draw_funnel(retrievals: pd.DataFrame, by: str) -> go.Figure:
    """Where retrievals go: asked by each method (or data set), found, used, and part of a right answer (a Sankey)."""
    states = {
        "found": ("found", "not found", "found? unknown"),
        "used": ("used", "not used", ""),
        "right": ("right answer", "wrong answer", "no gold answer"),
    }
    rows = pd.DataFrame({by: retrievals[by].astype(str)})
    for name, (yes, no, unknown) in states.items():
        rows[name] = [unknown if pd.isna(value) else yes if value else no for value in retrievals[name]]
    stages, groups = [by, *states], list(dict.fromkeys(rows[by]))
    nodes = [(stage, value) for stage in stages for value in dict.fromkeys(rows[stage])]
    links = pd.concat(
        rows.groupby([by, one, other], sort=False).size().rename("n").rename_axis(["by", "one", "other"]).reset_index()
        .assign(source=lambda f, s=one: [nodes.index((s, value)) for value in f["one"]],
                target=lambda f, s=other: [nodes.index((s, value)) for value in f["other"]])
        for one, other in pairwise(stages)
    )  # fmt: skip
    counts = [int((rows[stage] == value).sum()) for stage, value in nodes]
    labels = [f"{theme.clip_label(value, 40)} {n}" for (_, value), n in zip(nodes, counts, strict=True)]
    colours = [_fade(theme.COLOURS[groups.index(name) % len(theme.COLOURS)]) for name in links["by"]]
    said = [f"{row.n} retrievals of {theme.label(row.by)}: {row.one} → {row.other}" for row in links.itertuples()]
    figure = go.Figure(
        go.Sankey(
            node={"label": labels, "color": theme.GREY, "pad": 18, "hovertemplate": "%{label}<extra></extra>"},
            link={"source": links["source"], "target": links["target"], "value": links["n"], "color": colours,
                  "customdata": said, "hovertemplate": "%{customdata}<extra></extra>"},
        )
    )  # fmt: skip
    return theme.finish(figure, f"{len(rows)} retrievals: asked, found, used, part of a right answer", 380)


def _fade(colour: str) -> str:
    return f"rgba({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))}, .45)"


_SHAPES = ("", "/", "x", "-", "\\", "+")
