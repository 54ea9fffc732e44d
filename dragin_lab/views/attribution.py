"""What each retrieval was good for, as a page; and the marks of a trace's words, for other
pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from markupsafe import Markup

from dragin_lab.drawn import draws
from dragin_lab.study.attribution import Attribution, holds_value, is_attributed
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import count, esc, num, short
from dragin_lab.views.pages import Page, render

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLOURS = 6  # of passages, after which they begin again; the number tells them apart


def mark_word(word: Any) -> tuple[str, str]:
    """The HTML before and after a word, a row of ``Attribution.words``; ("", "") for a known
    one.
    """
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

    The number of the passage that a word comes from, with "?" where the model was not sure of it;
    "~" is a guess.
    """
    marks = dict[tuple[int, str, int], str]()
    if not is_attributed(trace):
        return marks
    words = Attribution(trace).words
    texts = {(step.index + 1, name): text for step in trace.steps for name, text, _ in step.texts}
    for word in words[words["step"].notna()].itertuples():
        tokens = (texts[word.step, word.source].offsets[:, 0] == word.start).nonzero()[0]
        sign = {"known": "", "guess": "~", "passage": f"{word.passage}{'?' * (not word.sure)}"}[
            word.mark
        ]
        if sign and len(tokens):
            marks[int(word.step), word.source, int(tokens[-1]) + 1] = sign
    return marks


def attribution_page(source: Attribution) -> Page:
    """An attribution as a page: the answer's words by the passage that they come from, then what
    each passage gave.
    """
    trace, record = source.trace, source.record
    marks, used = source.words["mark"].value_counts(), int(source.retrievals["used"].sum())
    shares = [f"{marks.get(name, 0)} {what}" for name, what in _COUNTED.items()]
    inexact = [text for text in record.texts if not text.exact]
    least = f"{short(record.least)} nat{'s' * (record.least != 1)}"
    rows = [
        ("retrievals", f"{used} of {len(source.retrievals)} used"),
        ("words", ", ".join(shares)),
        ("bounds", f"known from p {short(record.known)} on, a passage's from a gain of {least} on"),
    ]
    rows += [
        ("not exact", f"in {count(len(inexact), 'text')} each passage was left out once: too many")
    ] * bool(inexact)
    inner = render(
        "attribution.html",
        trace=trace,
        known=True,
        rows=rows,
        answer=Markup("".join(_draw_words(source))),
        bound=short(record.known),
        retrievals=list(_list_retrievals(source)),
    )
    return Page(trace.question.text, inner)


@draws(Attribution, "_repr_html_")
def show_attribution(source: Attribution) -> str:
    """The page, in a notebook."""
    return attribution_page(source).html


_COUNTED = {"known": "known", "passage": "from a passage", "guess": "guessed"}


def _draw_words(source: Attribution) -> Iterator[str]:
    """The answer, text by text, with ◆ where passages came in."""
    came = set[int]()
    for _, words in source.words.groupby(["step", "source"], sort=False, dropna=False):
        first = words.iloc[0]
        new = [
            n
            for n in source.retrievals["step"]
            if pd.notna(first["step"]) and n < first["step"] and n not in came
        ]
        new += [first["step"]] * (
            first["source"] == "continuation" and first["step"] in [*source.retrievals["step"]]
        )
        came.update(new)
        yield "".join(f'<bdi class="tag ok">◆ {n}</bdi>' for n in dict.fromkeys(new))
        yield (
            '<bdi class="tag dim">asked for the answer</bdi>'
            if first["source"] == "extraction"
            else ""
        )
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
                    "number": row.number,
                    "title": row.title,
                    "text": row.text,
                    "words": row.words,
                    "nats": row.nats,
                    "same": None if pd.isna(row.same) else row.same,
                    "gold": any(holds_value(row.text, gold) for gold in golds),
                }
                for row in source.passages.rename(columns={"same as": "same"}).itertuples()
                if row.retrieval == one.step
            ],
        }
