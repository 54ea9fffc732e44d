"""Why an answer is wrong, by rule, from its trace and what is known of the question.

The first rule that fits names the cause (``CAUSES`` is their order):

1. The episode failed, its answer could not be read, or its text was cut before an answer came.
2. Where the facts of the question are labelled (Almanac's are), the text is read against them up to
  the first wrong
   value (``truth.find_facts``), and the passage that states it is followed through the episode: was
   it looked for between the fact before and this value, was it found, and did it stand in the
   prompt when the value was written? A value that is stated of another subject than the expected
   one counts as wrong. With every fact right the conclusion is wrong.
3. Where only the titles of the gold passages are known (HotpotQA, 2WikiMultihopQA), the same is
  asked of those titles,
   with the place of the gold answer in the text, if it stands there, in place of the value's.
4. Else of any passage that holds the gold answer. What this cannot decide is "unknown", and ``why``
  says why.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dragin_lab.almanac import AlmanacError, labels
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.core.answers import normalize_answer
from dragin_lab.data.datasets import gold_titles
from dragin_lab.errors import DataError
from dragin_lab.study.attribution import find_replaced, find_sources, holds_value, plain_title
from dragin_lab.study.truth import StatedFact, find_facts
from dragin_lab.trace.kept import arrivals, origins
from dragin_lab.trace.trace import Passage, Trace

#: What can be wrong, in the order in which it is looked for.
CAUSES = {
    "failed": "the episode ended with an error",
    "no readable answer": "nothing that can be read as an answer follows the answer's phrase",
    "window": "the prompt outgrew the model's window, or passages were dropped to fit it",
    "never retrieved": "a needed fact was missing, and the episode searched for nothing",
    "not looked up": "it searched, but not where this fact was missing",
    "retrieved too late": "the passage was found after the value had been written",
    "not found": "it searched, and the passage was not among those found",
    "misspelt": "the right value, misspelt",
    "talked out of it": (
        "the right value had been written, and was replaced by another from a passage"
    ),
    "used, from another passage": (
        "the passage stood in the prompt, and the value comes from another one"
    ),
    "found and not used": "the passage stood in the prompt, and the value comes from no passage",
    "value not copied": "the passage stood in the prompt, and another value was written",
    "wrong conclusion": "the facts are right, the answer drawn from them is not",
    "cut by length": "the text ended before an answer came",
    "unknown": "what the run recorded does not tell",
}
#: Words of two values that are at least so alike are one word, misspelt (difflib's ratio).
ALIKE = 0.8
_NAME = re.compile(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
_CALL = re.compile(r"\s*\[Search\([^)\]]*\)\]")


@dataclass(frozen=True)
class Cause:
    """Why an answer is wrong: ``kind`` is one of ``CAUSES``, ``why`` explains it for this answer
    in a line.
    """

    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}"


@dataclass
class Judge:
    """Judges the answers of one data set, by what is known of its questions, by id."""

    labels: Mapping[str, Labelled] = field(default_factory=dict)
    titles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: str, config: Mapping[str, Any]) -> Judge:
        """What is known of a data set by its name: Almanac's labels, or the benchmarks' gold
        titles.
        """
        if dataset.startswith("almanac/"):
            name, split = dataset.removeprefix("almanac/"), config["dataset"].get("split") or "test"
            with suppress(AlmanacError):  # a benchmark of an earlier edition of the world
                return cls(
                    {
                        labelled.id: labelled
                        for labelled in labels(name.removesuffix(f"-{split}"), split)
                    }
                )
        else:
            with suppress(DataError):  # not on this machine, or of another format
                return cls(titles=gold_titles(dataset))
        return cls()

    def label(self, id: str, question: str) -> Labelled | None:
        """The labels of a question; None for another question of this id, such as one of an
        earlier edition.
        """
        labelled = self.labels.get(id)
        return (
            labelled
            if labelled is not None and labelled.question.strip() == question.strip()
            else None
        )

    def passages_of(self, id: str, question: str) -> tuple[str, ...]:
        """The ids or titles of the passages that a question needs, as far as they are known."""
        labelled = self.label(id, question)
        return (
            self.titles.get(id, ())
            if labelled is None
            else tuple(fact.passage for fact in labelled.facts)
        )

    def cause(self, line: Mapping[str, Any], trace: Trace | None = None) -> Cause:
        """Why the answer of a prediction line is wrong; what needs its ``trace`` is "unknown"
        without one.
        """
        if line["ended"] == "error":
            return Cause("failed", str(line.get("error", "")).partition("\n")[0][:200])
        if not line["readable"]:
            if line["ended"] == "length":
                return Cause("cut by length", f"after {line['tokens']} tokens, with no answer")
            return Cause("no readable answer", f"the text ends with {line['text'].strip()[-60:]!r}")
        if trace is None:
            return Cause("unknown", "no trace was kept, which would show what stood in the prompt")
        if (trace.text, trace.retrievals_count) != (line["text"], line["retrievals"]):
            return Cause("unknown", "the trace that was kept is of another answer to this question")
        view = _View(trace)
        if view.window_note:
            return Cause("window", view.window_note)
        if (labelled := self.label(line["id"], line["question"])) is not None:
            cause = _judge_by_facts(view, labelled)
        else:
            cause = _judge_by_answer(view, line, self.titles.get(line["id"], ()))
        if cause.kind in ("wrong conclusion", "unknown") and line["ended"] == "length":
            return Cause(
                "cut by length", f"after {line['tokens']} tokens: …{line['text'].strip()[-40:]!r}"
            )
        return cause


class _View:
    """The passages that were in the prompt when each character of a trace's text was written."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.text = trace, trace.text
        self.arrivals = arrivals(trace)
        self._origins = origins(trace)

    def passages_at(self, place: int) -> tuple[Passage, ...]:
        origin = next((o for o in self._origins if o.start <= place < o.stop), None)
        if origin is None or not origin.with_passages:
            return ()
        before = self.trace.steps[
            : origin.step.index + (origin.continuation is origin.step.continuation)
        ]
        return next((step.passages for step in reversed(before) if step.passages), ())

    @property
    def window_note(self) -> str:
        """The note that passages did not fit into the model's window; "" if all did."""
        notes = [note for step in self.trace.steps for note in step.notes]
        notes += [
            n
            for s in self.trace.steps
            for p in (s.prompt, s.passages_prompt)
            if p is not None
            for n in p.notes
        ]
        return next((note for note in notes if "window" in note and "exemplars" not in note), "")


# -- labelled facts --------------------------------------------------------------------------------


def _judge_by_facts(view: _View, labelled: Labelled) -> Cause:
    text, in_trace = _cut_calls(view.text)
    stated, ending = find_facts(text, labelled.facts)
    if ending == "all right":
        return Cause(
            "wrong conclusion",
            f"all {len(stated)} facts are right, and the answer is {view.trace.answer!r}",
        )
    if ending == "lost":
        fact = labelled.facts[len(stated)]
        other = _find_other_subject(text, stated[-1].end if stated else 0, fact, labelled)
        if other is None:
            return Cause(
                "unknown",
                f"the text does not state the {fact.relation} of {fact.subject} in a known wording",
            )
        stated.append(other)
    wrong = stated[-1]
    fact, value = labelled.facts[len(stated) - 1], text[wrong.start : wrong.end]
    since = in_trace(stated[-2].end) if len(stated) > 1 else 0
    place = in_trace(wrong.start)
    whose = "" if wrong.fact.subject == fact.subject else f" (written of {wrong.fact.subject})"
    difference = f"{fact.relation} of {fact.subject}: {value!r}{whose}, not {fact.value!r}"
    in_view = view.passages_at(place)
    if _is_misspelt(value, fact.value, in_view):
        return Cause("misspelt", difference)
    found = fact.passage in {passage.id for passage in in_view}
    sources = find_sources(view.trace, place, in_trace(wrong.end))
    if cause := _judge_sources(
        view, sources, difference, [fact.value], found, lambda one: one.id == fact.passage
    ):
        return cause
    if found:
        return Cause("value not copied", f"{difference}, {_find_source(value, fact, in_view)}")
    return _judge_absence(
        view, lambda passage: passage.id == fact.passage, since, place, difference
    )


def _find_other_subject(text: str, since: int, fact: Fact, labelled: Labelled) -> StatedFact | None:
    """The statement in place of an expected one, about a subject that the question does not
    need.
    """
    expected = {fact.subject for fact in labelled.facts}
    for name in dict.fromkeys(_NAME.findall(text, since)):
        if name not in expected:
            stated, _ = find_facts(text[since:], [replace(fact, subject=name)])
            if stated:
                return stated[0]._replace(start=stated[0].start + since, end=stated[0].end + since)
    return None


def _find_source(value: str, fact: Fact, in_view: Sequence[Passage]) -> str:
    holding = [passage for passage in in_view if holds_value(passage.text, value)]
    if own := [passage for passage in holding if passage.id == fact.passage]:
        return f"which stands in the same passage ({own[0].title!r})"
    if holding:
        return f"which stands in another passage ({holding[0].title!r})"
    return "the value it was taught" if value == fact.old else "which stands in no passage in view"


def _cut_calls(text: str) -> tuple[str, Callable[[int], int]]:
    """A text without search calls, and the function from a place in it to the place in the whole
    text.
    """
    calls = list(_CALL.finditer(text))

    def in_text(place: int) -> int:
        for call in calls:
            if call.start() > place:
                break
            place += call.end() - call.start()
        return place

    return _CALL.sub("", text), in_text


def _is_misspelt(value: str, right: str, in_view: Sequence[Passage]) -> bool:
    """Whether a value is the right one with letters exchanged: as many words, each alike, and
    found in no passage.
    """
    ours, wanted = value.casefold().split(), right.casefold().split()
    if len(ours) != len(wanted) or ours == wanted or any(map(str.isdigit, ours)):
        return False
    alike = (difflib.SequenceMatcher(None, a, b).ratio() for a, b in zip(ours, wanted, strict=True))
    return all(ratio >= ALIKE for ratio in alike) and not any(
        holds_value(passage.text, value) for passage in in_view
    )


# -- gold titles, or the gold answer alone ---------------------------------------------------------


def _judge_by_answer(view: _View, line: Mapping[str, Any], titles: Sequence[str]) -> Cause:
    golds, text = [gold for gold in line["gold"] if gold] or [""], view.text
    answer, closed = (
        view.trace.answer,
        {normalize_answer(gold) for gold in line["gold"]} <= {"yes", "no"},
    )
    difference = f"{answer[:60]!r}, not {golds[0][:60]!r}"
    if any(_is_misspelt(answer, gold, view.passages_at(len(text) - 1)) for gold in golds):
        return Cause("misspelt", difference)
    if not closed and any(holds_value(text, gold) for gold in golds):
        return Cause(
            "wrong conclusion", f"the text says {golds[0]!r}, the answer is {answer[:60]!r}"
        )
    passages = [passage for _, step in view.arrivals for passage in step.passages]
    place = text.find(answer) if answer and not closed else -1
    sources = None if place < 0 else find_sources(view.trace, place, place + len(answer))
    plain, in_view = set(map(plain_title, titles)), view.passages_at(max(place, 0))

    def is_gold(one: Passage) -> bool:
        return plain_title(one.title) in plain or any(holds_value(one.text, gold) for gold in golds)

    if cause := _judge_sources(
        view, sources, difference, golds, any(map(is_gold, in_view)), is_gold
    ):
        return cause
    found = {plain_title(passage.title) for passage in passages}
    lacking = [title for title in titles if plain_title(title) not in found]
    if titles and not lacking:
        return Cause(
            "value not copied", f"{difference}; all {len(titles)} gold passages were found"
        )
    if titles:
        return _judge_absence(
            view, lambda _: False, 0, len(text), f"{difference}; gold passage {lacking[0]!r}"
        )
    if not view.arrivals:
        return Cause("never retrieved", difference)
    if closed:
        return Cause("unknown", f"{difference}; the facts this question needs are not labelled")
    holding = [
        passage for passage in passages if any(holds_value(passage.text, gold) for gold in golds)
    ]
    if holding:
        return Cause(
            "value not copied",
            f"{difference}, which stands in the passage {holding[0].title!r} that was found",
        )
    return Cause("not found", f"{difference}; no passage found holds it")


def _judge_sources(
    view: _View,
    sources: Sequence[Passage] | None,
    difference: str,
    right: Sequence[str],
    found: bool,
    is_gold: Callable[[Passage], bool],
) -> Cause | None:
    """What an attributed trace adds: the passages that a wrong value comes from; None where that
    decides nothing.

    ``right`` are the values that would have been right, ``found`` whether a passage ``is_gold`` was
    in view.
    """
    if sources is None:
        return None
    for step in view.trace.steps if sources else ():
        before, after = find_replaced(view.trace, step) if step.query is not None else ("", "")
        if any(holds_value(before, one) for one in right) and not any(
            holds_value(after, one) for one in right
        ):
            return Cause(
                "talked out of it",
                f"{difference}, from {sources[0].title!r}; before it had {right[0]!r}",
            )
    if found and not sources:
        return Cause("found and not used", f"{difference}, which comes from no passage")
    if found and not any(map(is_gold, sources)):
        return Cause(
            "used, from another passage", f"{difference}, from the passage {sources[0].title!r}"
        )
    return None


def _judge_absence(
    view: _View, wanted: Callable[[Passage], bool], since: int, place: int, difference: str
) -> Cause:
    """Why a passage did not stand in the prompt at ``place``; the fact before ends at ``since``."""
    number = next(
        (n for n, (_, step) in enumerate(view.arrivals, 1) if any(map(wanted, step.passages))), None
    )
    if number is not None and view.arrivals[number - 1][0] > place:
        return Cause("retrieved too late", f"{difference}; retrieval {number} found it afterwards")
    queries = [
        step.query.sent
        for at, step in view.arrivals
        if since <= at <= place and step.query is not None
    ]
    if not queries:
        gone = (
            f"; retrieval {number} had found it, and it was in view no more"
            if number is not None
            else ""
        )
        return Cause("not looked up" if view.arrivals else "never retrieved", f"{difference}{gone}")
    return Cause("not found", f"{difference}; asked {queries[-1][:80]!r}")
