"""What each retrieval was good for, as a page; and the marks of a trace's words, for other
pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from dragin_lab.drawn import draws
from dragin_lab.study.attribution import Attribution, holds_value, is_attributed, plain_title
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import esc, num, plural, short
from dragin_lab.views.pages import Page, render

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def explain_word(word: Any) -> str:
    """The same as a sentence."""
    if word.mark != "passage":
        return "a guess: neither sure without passages nor from one"
    lines = [f"from passage {word.passage}, of step {word.retrieval}: {num(word.nats, 1)} nats"]
    if not word.sure:
        lines.append("not likely with it either")
    if not word.stands:
        lines.append(f"it does not stand in passage {word.passage}")
    if word.also:
        lines.append(
            f"it stands in {word.also} too" if word.stands else f"it stands in {word.also}"
        )
    return "; ".join(lines)


def mark_word(source: Attribution, word: Any) -> tuple[str, str]:
    """The HTML before and after a word, a row of ``Attribution.words``; ("", "") for a sure one."""
    if word.mark == "sure":
        return "", ""
    about = esc(explain_word(word))
    if word.mark == "guess":
        return f'<span class="guess" data-i="{about}">', "</span>"
    sign = sign_word(source, word)
    unsure = "" if word.sure else " unsure"
    opening = f'<span class="from c{sign.shade}{unsure}" data-i="{about}">'
    label = sign.text.replace("?", "")  # the dotted line says it
    return opening, f'<sup aria-label="{about}">{label}</sup></span>'


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
    trace, record = source.trace, source.record
    marks, used = source.words["mark"].value_counts(), int(source.retrievals["used"].sum())
    shares = [f"{marks.get(name, 0)} {what}" for name, what in _COUNTED.items()]
    inexact = [text for text in record.texts if not text.exact]
    least = f"{short(record.least)} nat{'s' * (record.least != 1)}"
    rows = [
        ("retrievals", f"{used} of {len(source.retrievals)} used"),
        ("words", ", ".join(shares)),
        ("bounds", f"sure from p {short(record.sure)} on, a passage's from a gain of {least} on"),
    ]
    rows += [
        ("not exact", f"in {plural(len(inexact), 'text')} each passage was left out once: too many")
    ] * bool(inexact)
    inner = render(
        "attribution.html",
        trace=trace,
        known=True,
        rows=rows,
        answer=Markup("".join(_draw_words(source))),
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
            opening, closing = mark_word(source, word)
            yield f"{opening}{esc(word.word)}{closing} "


def _say_found(one: Any) -> str:
    """What is known of a retrieval's hits: of labelled passages, else of the gold answer."""
    if not pd.isna(one.found):
        return f"found {'a' if one.found else 'no'} labelled passage"
    if not pd.isna(one.holds_gold):
        return f"holds the gold answer: {'yes' if one.holds_gold else 'no'}"
    return ""


def _say_used(one: Any, passages: list[dict[str, Any]]) -> str:
    if one.used:
        return f"used passage {one.which}"
    if not passages:
        return "found nothing"
    seen = any(passage["seen"] for passage in passages)
    return "not used" if seen else "not used: in view of no word that was kept"


def _list_retrievals(source: Attribution) -> Iterator[dict[str, Any]]:
    named = {"holds gold": "holds_gold", "same as": "same", "in view": "seen"}
    table = source.passages.rename(columns=named)
    retrievals = source.retrievals.rename(columns=named)
    for one in retrievals.itertuples():
        mine = table["retrieval"] == one.step
        rows = table[mine].to_dict("records")
        passages = [_describe_passage(source, row) for row in rows]
        said = [_say_found(one), _say_used(one, passages)]
        verdict = ", ".join(filter(None, said))
        yield {"step": one.step, "query": one.query, "verdict": verdict, "passages": passages}


def _describe_passage(source: Attribution, row: dict[str, Any]) -> dict[str, Any]:
    """A row of the passages with its colour, and whether it is labelled and holds a gold answer."""
    passage = dict(row)
    passage["shade"] = source.shades.get(row["number"])
    if pd.isna(row["same"]):
        passage["same"] = None
    title = plain_title(row["title"])
    id = plain_title(row["id"])
    passage["labelled"] = title in source.gold or id in source.gold
    text, golds = row["text"], source.trace.question.golds
    passage["gold"] = any(holds_value(text, gold) for gold in golds)
    return passage
