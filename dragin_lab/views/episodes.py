"""An episode as figures: what was kept, what a query was made from, and which words looked at which.

Attention paid to a word is the sum over its tokens, attention that a word pays the mean over its tokens (Clark,
Khandelwal, Levy and Manning, "What Does BERT Look At?", 2019, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dragin_lab.checks import count as count_of
from dragin_lab.checks import shown
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import WORD, Word, character_words
from dragin_lab.trace.kept import sentence_end, written
from dragin_lab.trace.trace import Draft, Prompt, Step, Trace
from dragin_lab.views import theme
from dragin_lab.views.facts import chosen_line
from dragin_lab.views.html import clip, count, num
from dragin_lab.views.rows import check_trace, find_text, unit_of

if TYPE_CHECKING:
    from dragin_lab.engines.load import LanguageModel


FATES = {"kept": theme.TEAL, "thrown away": theme.AMBER, "not decided yet": theme.GREY}
PARTS = {"question": theme.BLUE, "answer so far": theme.TEAL, "draft": theme.PURPLE}
CANDIDATES = 250
PIXELS = 34  # of a step's bar


def timeline(trace: Trace) -> go.Figure:
    """The steps of an episode under each other on one axis of tokens: kept, thrown away (hatched), ◆ a retrieval.

    A bar's hover text is what was written, a diamond's what was asked and found.
    """
    texts: list[tuple[Step | None, str, Draft]] = [*written(check_trace(trace).steps)]
    texts += [(None, "extraction", trace.extraction)] if trace.extraction is not None else []
    if not any(len(text) for *_, text in texts):
        return theme.message(trace.question.text, "Nothing is written yet.")
    bars: dict[str, list[tuple[int, int, str, str]]] = {fate: [] for fate in FATES}  # start, tokens, step, hover text
    place, retrieved_at, names = 0, dict[int, int](), list[str]()
    for step, source, text in texts:
        name = source if step is None else f"step {step.index + 1}"
        end = len(text.text) if step is None else step.kept_end(source)
        # A last token without characters belongs to the text before it.
        kept = len(text) if end is None else int(np.searchsorted(text.offsets[:, 0], end + (end >= len(text.text))))
        parts = {"not decided yet" if end is None else "kept": (0, kept), "thrown away": (kept, len(text))}
        for fate, (start, stop) in parts.items():
            if start < stop:
                body = text.text[int(text.offsets[start, 0]) : int(text.offsets[stop - 1, 1])]
                about = f"{name}, {source}, {fate}: {count(stop - start, 'token')}<br>{_wrap_text(body)}"
                bars[fate].append((place + start, stop - start, name, about))
        if step is not None:  # passages come in behind the draft, or before all that the step wrote
            retrieved_at.setdefault(step.index, place + len(text) * (source == "draft"))
        place += len(text)
        names += [] if name in names else [name]
    figure = go.Figure()
    for fate, own in bars.items():
        if own:
            starts, sizes, steps, abouts = zip(*own, strict=True)
            figure.add_bar(
                orientation="h", base=starts, x=sizes, y=steps, name=fate, customdata=abouts,
                marker={"color": FATES[fate], "pattern": theme.HATCH | {"shape": "" if fate == "kept" else "/"}},
                hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
    searches = [step for step in trace.steps if step.query is not None]
    figure.add_scatter(
        x=[retrieved_at.get(step.index, 0) for step in searches],
        y=[f"step {step.index + 1}" for step in searches],
        mode="markers", name="◆ retrieval", customdata=[_describe_retrieval(step) for step in searches],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"symbol": "diamond", "size": 14, "color": theme.BLUE, "line": {"color": "#ffffff", "width": 1}},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    figure.update_xaxes(title_text="tokens written")
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom"}
    height = 170 + PIXELS * len(names)
    return theme.finish(figure, trace.question.text, height, barmode="overlay", legend=legend)


def _wrap_text(text: str, limit: int = 600, width: int = 90) -> str:
    shown = "".join(clip(text.strip(), limit))
    return "<br>".join(theme.label(shown[i : i + width]) for i in range(0, len(shown), width))


def _describe_retrieval(step: Step) -> str:
    assert step.query is not None
    why = [_wrap_text(step.decision.reason)] if step.decision is not None else []
    passages = [f"{rank}. {theme.clip_label(p.title or p.id, 80)}" for rank, p in enumerate(step.passages[:5], 1)]
    return "<br>".join(
        [*why, f"⌕ {_wrap_text(step.query.sent or '(empty query)')}", *(passages or ["nothing was found"])]
    )


def selections(trace: Trace, step: int | None = None) -> go.Figure:
    """What a step's query was made from: every candidate word with the attention that the hit paid to it (§3.2).

    Full bars with ✓ were chosen, hatched ones were not; colours and the text under the axis name the part of the text.
    ``step`` counts from 1; default the first that retrieved. Raises ``SettingError`` for a step that is not there.
    """
    if not any(own.query is not None for own in check_trace(trace).steps):
        return theme.message(trace.question.text, "This episode retrieved nothing, so there is no query.")
    retrieved = next(own for own in trace.steps if own.query is not None)
    own = retrieved if step is None else find_text(trace, step)[0]
    assert own is not None
    title = f"Step {own.index + 1} asks: {own.query.text if own.query is not None else 'nothing'}"
    if own.query is None or not len(own.query.words):
        reason = f"Query formulator {trace.method.get('what', '?')!r} does not weigh words by attention."
        return theme.message(title, reason if own.query is not None else f"Step {own.index + 1} retrieved nothing.")
    query, left = own.query, max(len(own.query.words) - CANDIDATES, 0)
    rows = [
        (part, word, float(weight), bool(chosen))
        for part, word, weight, chosen in zip(
            find_parts(trace, own), query.words, query.weights, query.chosen, strict=True
        )
    ][left:]
    figure = go.Figure()
    for part, colour in PARTS.items():
        for chosen in (True, False):
            inside = [(place, *row) for place, row in enumerate(rows) if (row[0], row[3]) == (part, chosen)]
            pattern = theme.HATCH | {"shape": "" if chosen else "/"}
            figure.add_bar(
                x=[place for place, *_ in inside], y=[weight for _, _, _, weight, _ in inside],
                name=f"{part}, {'✓ chosen' if chosen else 'not chosen'}", showlegend=bool(inside),
                text="✓" if chosen else "", textposition="outside", cliponaxis=False,
                marker={"color": colour, "opacity": 1 if chosen else 0.55, "pattern": pattern},
                customdata=[f"{theme.label(word)} · {part} · {num(weight)}" for _, _, word, weight, _ in inside],
                hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
    edges = [place for place, (a, b) in enumerate(pairwise(rows), 1) if a[0] != b[0]]
    for edge in edges:
        figure.add_vline(edge - 0.5, line_color=theme.GRID)
    figure.update_xaxes(
        tickvals=list(range(len(rows))), ticktext=[theme.clip_label(word, 20) for _, word, *_ in rows], tickangle=-60,
        showgrid=False,
    )  # fmt: skip
    hit = "the hit" if unit_of(trace) == "word" else f"the words that stand for the {unit_of(trace)}"
    figure.update_yaxes(title_text=f"attention from {hit}")
    more = f"; {count(left, 'earlier word')} left out" if left else ""
    figure.update_xaxes(title_text=chosen_line(query) + more)
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom"}
    return theme.finish(figure, title, 400, barmode="overlay", legend=legend)


def find_parts(trace: Trace, step: Step) -> list[str]:
    """The part of the text that each candidate of a query stands in; candidates are in text order, hits are none."""
    before = trace.steps[step.index - 1].answer if step.index else ""
    texts = {"question": trace.question.text, "answer so far": before, "draft": _read_draft(trace, step)}
    words = [(part, word) for part, text in texts.items() for word in WORD.findall(text)]
    parts: list[str] = []
    place = 0
    assert step.query is not None
    for word in step.query.words:
        match = next((i for i in range(place, len(words)) if words[i][1] == word), None)
        place = place if match is None else match + 1
        parts.append(words[match][0] if match is not None else parts[-1] if parts else "question")
    return parts


def _read_draft(trace: Trace, step: Step) -> str:
    """The draft up to its cut; the released code also reads the rest of the sentence that fired."""
    draft, decision = step.draft, step.decision
    if draft is None or decision is None:
        return ""
    end = len(draft.text) if decision.cut is None else decision.cut
    if trace.method.get("variant") == "reference":
        end = max(end, sentence_end(step, decision.sentence, end) or len(draft.text))
    return draft.text[:end]


Part = tuple[str, Word]  # "question", "answer so far" or "draft", and a word of it
NO_ATTENTION = (
    "This trace kept no attention. It is kept where a query is made from the draft's own rows, as\n"
    "dl.method('dragin') does; trace.attention(lm=lab.model) has a model read the text again."
)


@dataclass(frozen=True)
class WordMap:
    """Attention between words, ``paid (h, r, c)`` float32: row r pays column c; NaN where it cannot look ahead."""

    paid: np.ndarray
    rows: list[Part]
    columns: list[Part]
    heads: list[int]


def attention(
    trace: Trace,
    step: int | None = None,
    head: int | None = None,
    *,
    lm: LanguageModel | None = None,
    max_words: int = 80,
) -> go.Figure:
    """The attention of a step's draft as a map of words; a menu chooses the mean of the heads or one head.

    Without ``lm`` it shows the rows that were kept while the draft was written: its words look at the question, the
    answer so far and the draft. With ``lm`` the model reads question and answer once more by themselves, as the
    reference variant does, so it works for every trace. ``step`` counts from 1; ``head`` is shown first, default the
    mean. At most ``max_words`` words stand on an axis. Raises ``SettingError`` for a step or head that does not exist.
    """
    max_words = count_of("max_words", max_words, 2)
    if not (lm is None or hasattr(lm, "tokenizer")):
        raise SettingError(f"lm {shown(lm)} is {type(lm).__name__}; give the LanguageModel that wrote the trace")
    if not check_trace(trace).continuations:
        return theme.message(trace.question.text, "Nothing is written yet, so there is no attention to show.")
    own, name, _ = find_text(trace, step)
    if lm is not None:
        words = read_again(trace.question.text, trace.text if step is None or own is None else own.answer, lm)
        where = "question and answer, read again by themselves"
    else:
        kept = [one for one in trace.steps if step is None or one is own]
        texts = [(one.draft, one.prompt) for one in kept] + [(one.continuation, one.passages_prompt) for one in kept]
        rows = next(((t, p) for t, p in texts if t is not None and p is not None and t.rows is not None), None)
        if rows is None:
            return theme.message(trace.question.text, NO_ATTENTION)
        words, where = written_map(trace, *rows), name
    if head is not None and not (isinstance(head, int) and head in words.heads):
        raise SettingError(f"head={shown(head)} was not captured; give one of {', '.join(map(str, words.heads))}")
    return draw_map(fit_words(words, max_words), f"{trace.question.text} · {where}", head)


def written_map(trace: Trace, text: Draft, prompt: Prompt) -> WordMap:
    """The rows kept while a text was written: row t + 1 is token t looking back."""
    assert text.rows is not None
    rows = [("draft", word) for word in character_words(text.text, text.offsets) if word.text]
    columns: list[Part] = []
    for name, part in (("question", "question"), ("answer", "answer so far")):
        a, b = prompt.spans.get(name, (0, 0))
        inside = np.flatnonzero((text.prompt_offsets[:, 1] > a) & (text.prompt_offsets[:, 0] < b))
        for word in character_words(prompt.text, np.clip(text.prompt_offsets[inside], a, b)):
            if word.text:
                columns.append((part, Word(word.text, int(inside[word.start]), int(inside[word.stop - 1]) + 1)))
    p = len(text.prompt_ids)
    columns += [(part, Word(word.text, p + word.start, p + word.stop)) for part, word in rows]
    heads = trace.provenance.get("heads")
    known = heads if isinstance(heads, list | tuple) and len(heads) == len(text.rows) else range(len(text.rows))
    paid = pay_attention(text.rows[:, 1:].astype(np.float32), rows, columns, first=p)
    return WordMap(paid, rows, columns, [int(i) for i in known])


def read_again(question: str, answer: str, lm: LanguageModel) -> WordMap:
    """Question and answer read by themselves: every word looks at every word before it."""
    text = f"{question} {answer}"
    ids, offsets = lm.tokenizer.encode_with_offsets(text)
    attention = np.asarray(lm.attend(ids), np.float32)  # (h, n, n)
    words = [
        ("question" if int(offsets[word.start, 0]) < len(question) else "answer", word)
        for word in character_words(text, offsets)
        if word.text
    ]
    heads = list(range(len(attention))) if lm.tap.heads is None else [int(i) for i in lm.tap.heads]
    return WordMap(pay_attention(attention, words, words, first=0), words, words, heads)


def pay_attention(attention: np.ndarray, rows: list[Part], columns: list[Part], first: int) -> np.ndarray:
    """(h, r, c) float32: the mean over a row's tokens of the sum over a column's; NaN where the column lies ahead.

    ``attention`` is (h, queries, keys); query q is the position ``first + q`` of the keys.
    """
    sums = np.concatenate([np.zeros((*attention.shape[:2], 1), np.float32), attention.cumsum(axis=2)], axis=2)
    starts, stops = (np.array([getattr(word, end) for _, word in columns], int) for end in ("start", "stop"))
    to_words = sums[:, :, stops] - sums[:, :, starts]  # (h, queries, c)
    paid = np.stack([to_words[:, word.start : word.stop].mean(axis=1) for _, word in rows], axis=1)  # (h, r, c)
    ahead = starts[None, :] >= first + np.array([word.stop for _, word in rows])[:, None]  # (r, c)
    return np.where(ahead, np.nan, paid)


def fit_words(words: WordMap, most: int) -> WordMap:
    """At most ``most`` words on an axis: the question's start and the text's end, nearest to what is asked."""

    def keep(axis: list[Part]) -> list[int]:
        question = [i for i, (part, _) in enumerate(axis) if part == "question"][: most // 3]
        rest = [i for i, (part, _) in enumerate(axis) if part != "question"]
        return list(range(len(axis))) if len(axis) <= most else [*question, *rest[len(question) - most :]]

    rows, columns = keep(words.rows), keep(words.columns)
    paid = words.paid[:, rows][:, :, columns]
    return WordMap(paid, [words.rows[i] for i in rows], [words.columns[i] for i in columns], words.heads)


def draw_map(words: WordMap, title: str, head: int | None = None) -> go.Figure:
    """The map, with a menu of the heads where there are several."""
    names = [f"mean of {count(len(words.heads), 'head')}", *(f"head {h}" for h in words.heads)]
    maps = [words.paid.mean(axis=0), *words.paid]  # (r, c) each
    chosen = 0 if head is None else 1 + words.heads.index(head)
    hover_texts = [
        [f"{theme.label(r.text)} → {theme.label(c.text)} ({part})" for part, c in words.columns] for _, r in words.rows
    ]
    figure = go.Figure()
    for at, (name, paid) in enumerate(zip(names, maps, strict=True)):
        figure.add_heatmap(
            z=paid, visible=at == chosen, name=name, customdata=hover_texts, coloraxis="coloraxis", hoverongaps=False,
            hovertemplate="%{customdata}: %{z:.3f}<extra></extra>",
        )  # fmt: skip
    for axis, draw in ((words.columns, figure.add_vline), (words.rows, figure.add_hline)):
        for at, (a, b) in enumerate(pairwise(axis), 1):
            if a[0] != b[0]:
                draw(at - 0.5, line_color=theme.INK, line_width=1)
    ticks = [[theme.clip_label(word.text, 18) for _, word in axis] for axis in (words.columns, words.rows)]
    figure.update_xaxes(
        tickvals=list(range(len(ticks[0]))), ticktext=ticks[0], tickangle=-60, showgrid=False, title_text="is looked at"
    )
    figure.update_yaxes(tickvals=list(range(len(ticks[1]))), ticktext=ticks[1], autorange="reversed", showgrid=False)
    menu = [
        {"label": name, "method": "update", "args": [{"visible": [i == at for i in range(len(names))]}]}
        for at, name in enumerate(names)
    ]
    place = {"x": 1, "y": 1.02, "xanchor": "right", "yanchor": "bottom"}
    look = place | {"bgcolor": "#ffffff", "font": {"color": "#24211d"}}
    scale = [[0, "rgba(0, 114, 178, 0)"], [0.15, "rgba(0, 114, 178, .45)"], [1, "rgba(0, 114, 178, 1)"]]
    return theme.finish(
        figure, title, 240 + 19 * len(words.rows), coloraxis={"colorscale": scale, "cmin": 0, "colorbar_title": "paid"},
        updatemenus=[{"buttons": menu, "active": chosen} | look] if len(words.heads) > 1 else [],
    )  # fmt: skip
