"""What each retrieval was good for, as a page; and the marks of a trace's words, for other
pages.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from dragin_lab.drawn import draws
from dragin_lab.study.attribution import Attribution, holds_value, is_attributed, plain_title
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import plural, short
from dragin_lab.views.pages import Page, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLOURS = 6  # of passages, after which they begin again; the number tells them apart


class Sign(NamedTuple):
    """What stands on a word: a text, and the colour of the passage that it names, None for none."""

    text: str
    shade: int | None = None


NO_SIGN = Sign("")


def sign_word(source: Attribution, word: Any) -> Sign:
    """What stands on a word, a row of ``Attribution.words``.

    The number of the passage that it is from, with † where it does not stand there and ? where it
    was not likely with it, then the others in which it stands; "~" is a guess, nothing a sure one.
    """
    if word.mark != "passage":
        return Sign("~" if word.mark == "guess" else "")
    doubts = "†" * (not word.stands) + "?" * (not word.sure)
    others = f", {word.also}" if word.also else ""
    shade = source.shades[word.passage] % COLOURS
    return Sign(f"{word.passage}{doubts}{others}", shade)


def overview_marks(trace: Trace) -> dict[tuple[int, str, int], Sign]:
    """What stands on the words of a trace's overview, by (step, source, token), from 1."""
    marks = dict[tuple[int, str, int], Sign]()
    if not is_attributed(trace):
        return marks
    source = Attribution(trace)
    in_steps = source.words[source.words["step"].notna()]
    for word in in_steps.itertuples():
        text = getattr(trace.steps[word.step - 1], word.source)
        tokens = (text.offsets[:, 0] == word.start).nonzero()[0]
        sign = sign_word(source, word)
        if sign.text and len(tokens):
            marks[int(word.step), word.source, int(tokens[-1]) + 1] = sign
    return marks


def list_sources(trace: Trace) -> list[tuple[Sign, str]]:
    """The passages that gave the answer's words, for a legend: number and colour, title."""
    if not is_attributed(trace):
        return []
    source = Attribution(trace)
    sources = []
    for number, shade in source.shades.items():
        title = source.by_number[number].title or "(no title)"
        sources.append((Sign(str(number), shade % COLOURS), title))
    return sources


def attribution_page(source: Attribution) -> Page:
    """An attribution as a page: the answer's words by the passage that they come from, then what
    each passage gave.
    """
    trace = source.trace
    record = source.record
    marks = source.words["mark"].value_counts()
    used = source.retrievals["used"].sum()
    shares = [f"{marks.get(name, 0)} {what}" for name, what in _COUNTED.items()]
    least = f"{short(record.least)} nat{'s' * (record.least != 1)}"
    rows = [
        ("retrievals", f"{used} of {len(source.retrievals)} used"),
        ("words", ", ".join(shares)),
        ("bounds", f"sure from p {short(record.sure)} on, a passage's from a gain of {least} on"),
    ]
    inexact = sum(not text.exact for text in record.texts)
    if inexact:
        left_out = f"in {plural(inexact, 'text')} each passage was left out once: too many"
        rows.append(("not exact", left_out))
    inner = render(
        "attribution.html",
        trace=trace,
        known=True,
        rows=rows,
        texts=_list_texts(source),
        sign_word=partial(sign_word, source),
        bound=short(record.sure),
        retrievals=list(_list_retrievals(source)),
        sources=list_sources(trace),
    )
    return Page(trace.question.text, inner)


@draws(Attribution, "_repr_html_")
def show_attribution(source: Attribution) -> str:
    """The page, in a notebook."""
    return attribution_page(source).html


_COUNTED = {"sure": "sure without passages", "passage": "from a passage", "guess": "guessed"}


def _list_texts(source: Attribution) -> Iterator[tuple[str, list[int], Iterable[Any]]]:
    """The answer's texts: which it is, the steps whose passages came in there, and its words."""
    came = set[int]()
    groups = source.words.groupby(["step", "source"], sort=False, dropna=False)
    for (step, name), words in groups:
        new = []
        if name != "extraction":
            # its own retrieval came before a continuation
            until = step + (name == "continuation")
            new = [n for n in source.retrievals["step"] if n < until and n not in came]
            came.update(new)
        yield name, new, words.itertuples()


def _say_found(retrieval: Any) -> str:
    """What is known of a retrieval's hits: of labelled passages, else of the gold answer."""
    if not pd.isna(retrieval.found):
        return f"found {'a' if retrieval.found else 'no'} labelled passage"
    if not pd.isna(retrieval.holds_gold):
        return f"holds the gold answer: {'yes' if retrieval.holds_gold else 'no'}"
    return ""


def _say_used(retrieval: Any, passages: list[dict[str, Any]]) -> str:
    if retrieval.used:
        return f"used passage {retrieval.which}"
    if not passages:
        return "found nothing"
    seen = any(passage["seen"] for passage in passages)
    return "not used" if seen else "not used: in view of no word that was kept"


def _list_retrievals(source: Attribution) -> Iterator[dict[str, Any]]:
    named = {"holds gold": "holds_gold", "same as": "same", "in view": "seen"}
    table = source.passages.rename(columns=named)
    for retrieval in source.retrievals.rename(columns=named).itertuples():
        hits = table[table["retrieval"] == retrieval.step]
        passages = [_describe_passage(source, row) for row in hits.to_dict("records")]
        verdicts = [_say_found(retrieval), _say_used(retrieval, passages)]
        yield {
            "step": retrieval.step,
            "query": retrieval.query,
            "verdict": ", ".join(filter(None, verdicts)),
            "passages": passages,
        }


def _describe_passage(source: Attribution, row: dict[str, Any]) -> dict[str, Any]:
    """A row of the passages with its colour, and whether it is labelled and holds a gold answer."""
    titles = {plain_title(row["title"]), plain_title(row["id"])}
    golds = source.trace.question.golds
    return row | {
        "shade": source.shades.get(row["number"]),
        "same": None if pd.isna(row["same"]) else row["same"],
        "labelled": not titles.isdisjoint(source.gold),
        "gold": any(holds_value(row["text"], gold) for gold in golds),
    }
