"""Why an answer is wrong, by rule, from its trace and what is known of the question.

The first rule that fits names the cause (``CAUSES`` is their order):

1. The episode failed, its answer could not be read, or its text was cut before an answer came.
2. Where the facts of the question are labelled (Almanac's are), the text is read against them up to the first wrong
   value (``needs.find_facts``), and the passage that states it is followed through the episode: was it looked for
   between the fact before and this value, was it found, and did it stand in the prompt when the value was written?
   A value that is stated of another subject than the expected one counts as wrong. With every fact right the
   conclusion is wrong.
3. Where only the titles of the gold passages are known (HotpotQA, 2WikiMultihopQA), the same is asked of those titles,
   with the place of the gold answer in the text, if it stands there, in place of the value's.
4. Else of any passage that holds the gold answer. What this cannot decide is "unknown", and ``why`` says why.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from dragin_lab.almanac import AlmanacError, labels, wordings
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.core.answers import normalize_answer
from dragin_lab.data.datasets import gold_titles
from dragin_lab.errors import DataError
from dragin_lab.run.lines import readable
from dragin_lab.study.needs import Found, find_facts
from dragin_lab.trace.kept import arrivals, origins
from dragin_lab.trace.trace import Passage, Trace

if TYPE_CHECKING:
    from dragin_lab.retrieval.bm25 import BM25

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
    "value not copied": "the passage stood in the prompt, and another value was written",
    "wrong conclusion": "the facts are right, the answer drawn from them is not",
    "cut by length": "the text ended before an answer came",
    "unknown": "what the run recorded does not tell",
}
#: Words of two values that are at least so alike are one word, misspelt (difflib's ratio).
ALIKE = 0.8
DEPTH = 100  # ranks that are looked through for a passage that was not found
_NAME = re.compile(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
_CALL = re.compile(r"\s*\[Search\([^)\]]*\)\]")

Search = Callable[[str, int], Sequence[Passage]]


@dataclass(frozen=True)
class Cause:
    """Why an answer is wrong: ``kind`` is one of ``CAUSES``, ``why`` says it of this answer in a line."""

    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}"


@dataclass
class Judge:
    """Judges the answers of one data set.

    ``labels`` and ``titles`` are what is known of its questions, by id; ``search`` finds the rank of a passage that a
    query missed (None: not looked for).
    """

    labels: Mapping[str, Labelled] = field(default_factory=dict)
    titles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    search: Search | None = None

    @classmethod
    def of(cls, dataset: str, config: Mapping[str, Any], known: Iterable[Labelled] = ()) -> Judge:
        """What is known of a data set by its name: Almanac's labels, the benchmarks' gold titles, labels given."""
        found = {one.qid: one for one in known}
        if dataset.startswith("almanac/"):
            name, split = dataset.removeprefix("almanac/"), config["dataset"].get("split") or "test"
            with suppress(AlmanacError):  # a benchmark of an earlier edition of the world
                found |= {one.qid: one for one in labels(name.removesuffix(f"-{split}"), split)}
            return cls(found, search=_embedded_search(config))
        try:
            return cls(found, gold_titles(dataset))
        except DataError:  # not on this machine, or of another format
            return cls(found)

    def label(self, qid: str, question: str) -> Labelled | None:
        """The labels of a question; None for another question of this id, such as one of an earlier edition."""
        found = self.labels.get(qid)
        return found if found is not None and found.question.strip() == question.strip() else None

    def cause(self, line: Mapping[str, Any], trace: Trace | None = None) -> Cause:
        """Why the answer of a prediction line is wrong; what needs its ``trace`` is "unknown" without one."""
        if line["ended"] == "error":
            return Cause("failed", str(line.get("error", "")).partition("\n")[0][:200])
        if not readable(line):
            if line["ended"] == "length":
                return Cause("cut by length", f"after {line['tokens']} tokens, with no answer")
            return Cause("no readable answer", f"the text ends with {line['text'].strip()[-60:]!r}")
        if trace is None:
            return Cause("unknown", "no trace was kept, which would tell what stood in the prompt")
        if (trace.text, trace.retrievals_count) != (line["text"], line["retrievals"]):
            return Cause("unknown", "the trace that was kept is of another answer to this question")
        episode = Told(trace)
        if episode.overrun:
            return Cause("window", episode.overrun)
        if (labelled := self.label(line["qid"], line["question"])) is not None:
            found = _by_facts(episode, labelled, self.search)
        else:
            found = _by_answer(episode, line, self.titles.get(line["qid"], ()), self.search)
        if found.kind in ("wrong conclusion", "unknown") and line["ended"] == "length":
            return Cause("cut by length", f"after {line['tokens']} tokens: …{line['text'].strip()[-40:]!r}")
        return found


class Told:
    """What a trace tells of the way to an answer; places are characters of its text."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.text = trace, trace.text
        self.arrivals = arrivals(trace)
        self._origins = origins(trace)

    def in_view(self, place: int) -> tuple[Passage, ...]:
        """The passages that stood in the prompt of what was written at a place."""
        origin = next((o for o in self._origins if o.start <= place < o.stop), None)
        if origin is None or not origin.with_passages:
            return ()
        if origin.made is origin.step.continuation:
            return origin.step.passages
        before = self.trace.steps[: origin.step.index]
        return next((step.passages for step in reversed(before) if step.passages), ())

    @property
    def overrun(self) -> str:
        """What was said of the window, where passages did not fit into it; "" where all did."""
        said = [note for step in self.trace.steps for note in step.notes]
        said += [n for s in self.trace.steps for p in (s.prompt, s.passages_prompt) if p is not None for n in p.notes]
        return next((note for note in said if "window" in note and "exemplars" not in note), "")


# -- labelled facts ---------------------------------------------------------------------------------------------------


def _by_facts(told: Told, labelled: Labelled, search: Search | None) -> Cause:
    text, back = _without_calls(told.text)
    found, how = find_facts(text, labelled.facts, wordings())
    if how == "all right":
        return Cause("wrong conclusion", f"all {len(found)} facts are right, and the answer is {told.trace.answer!r}")
    if how == "lost":
        fact = labelled.facts[len(found)]
        other = _of_another(text, found[-1].end if found else 0, fact, labelled)
        if other is None:
            return Cause("unknown", f"the text does not state the {fact.relation} of {fact.subject} in a known wording")
        found.append(other)
    wrong = found[-1]
    fact, value = labelled.facts[len(found) - 1], text[wrong.start : wrong.end]
    since = back(found[-2].end) if len(found) > 1 else 0
    place = back(wrong.start)
    whose = "" if wrong.fact.subject == fact.subject else f" (written of {wrong.fact.subject})"
    said = f"{fact.relation} of {fact.subject}: {value!r}{whose}, not {fact.value!r}"
    in_view = told.in_view(place)
    if _misspelt(value, fact.value, in_view):
        return Cause("misspelt", said)
    if fact.passage in {passage.id for passage in in_view}:
        return Cause("value not copied", f"{said}, {_source(value, fact, in_view)}")
    return _not_in_view(told, lambda passage: passage.id == fact.passage, since, place, said, search)


def _of_another(text: str, since: int, fact: Fact, labelled: Labelled) -> Found | None:
    """The statement that stands in place of an expected one: of a subject that the question has nothing to do with."""
    expected = {one.subject for one in labelled.facts}
    for name in dict.fromkeys(_NAME.findall(text, since)):
        if name not in expected:
            found, _ = find_facts(text[since:], [replace(fact, subject=name)], wordings())
            if found:
                return replace(found[0], start=found[0].start + since, end=found[0].end + since)
    return None


def _source(value: str, fact: Fact, in_view: Sequence[Passage]) -> str:
    """Where a wrong value is from."""
    holding = [passage for passage in in_view if _holds(passage.text, value)]
    if own := [passage for passage in holding if passage.id == fact.passage]:
        return f"which stands in the same passage ({own[0].title!r})"
    if holding:
        return f"which stands in another passage ({holding[0].title!r})"
    return "the value it was taught" if value == fact.old else "which stands in no passage in view"


def _without_calls(text: str) -> tuple[str, Callable[[int], int]]:
    """A text without search calls, and what gives the place in the text of a place in it."""
    calls = list(_CALL.finditer(text))

    def back(place: int) -> int:
        for call in calls:
            if call.start() > place:
                break
            place += call.end() - call.start()
        return place

    return _CALL.sub("", text), back


def _misspelt(value: str, right: str, in_view: Sequence[Passage]) -> bool:
    """Whether a value is the right one with letters exchanged: as many words, each alike, and found in no passage."""
    ours, wanted = value.casefold().split(), right.casefold().split()
    if len(ours) != len(wanted) or ours == wanted or any(map(str.isdigit, ours)):
        return False
    alike = (difflib.SequenceMatcher(None, a, b).ratio() for a, b in zip(ours, wanted, strict=True))
    return all(ratio >= ALIKE for ratio in alike) and not any(_holds(passage.text, value) for passage in in_view)


# -- gold titles, or the gold answer alone ----------------------------------------------------------------------------


def _by_answer(told: Told, line: Mapping[str, Any], titles: Sequence[str], search: Search | None) -> Cause:
    golds, text = [gold for gold in line["gold"] if gold] or [""], told.text
    answer, closed = told.trace.answer, {normalize_answer(gold) for gold in line["gold"]} <= {"yes", "no"}
    said = f"{answer[:60]!r}, not {golds[0][:60]!r}"
    if any(_misspelt(answer, gold, told.in_view(len(text) - 1)) for gold in golds):
        return Cause("misspelt", said)
    if not closed and any(_holds(text, gold) for gold in golds):
        return Cause("wrong conclusion", f"the text says {golds[0]!r}, the answer is {answer[:60]!r}")
    ever = [passage for _, step in told.arrivals for passage in step.passages]
    lacking = [title for title in titles if title not in {passage.title for passage in ever}]
    if titles and not lacking:
        return Cause("value not copied", f"{said}; all {len(titles)} gold passages were found")
    if titles:
        what = f"{said}; gold passage {lacking[0]!r}"
        return _not_in_view(told, lambda passage: passage.title == lacking[0], 0, len(text), what, search)
    if closed or not told.arrivals:
        searched = told.trace.provenance.get("retriever", {}) is not None  # None for a method that never does
        if not told.arrivals and searched:
            return Cause("never retrieved", said)
        return Cause("unknown", f"{said}; the facts this question needs are not labelled")
    holds = [passage for passage in ever if any(_holds(passage.text, gold) for gold in golds)]
    if holds:
        return Cause("value not copied", f"{said}, which stands in the passage {holds[0].title!r} that was found")
    return Cause("not found", f"{said}; no passage found holds it")


# -- what both ask ----------------------------------------------------------------------------------------------------


def _not_in_view(
    told: Told, wanted: Callable[[Passage], bool], since: int, place: int, said: str, search: Search | None
) -> Cause:
    """Why a passage did not stand in the prompt at ``place``; the fact before ends at ``since``."""
    number = next((n for n, (_, step) in enumerate(told.arrivals, 1) if any(map(wanted, step.passages))), None)
    if number is not None and told.arrivals[number - 1][0] > place:
        return Cause("retrieved too late", f"{said}; retrieval {number} found it afterwards")
    tried = [step.query.sent for at, step in told.arrivals if since <= at <= place and step.query is not None]
    if not tried:
        gone = f"; retrieval {number} had found it, and it was in view no more" if number is not None else ""
        return Cause("not looked up" if told.arrivals else "never retrieved", f"{said}{gone}")
    return Cause("not found", f"{said}; {_rank(tried[-1], wanted, search)}")


def _rank(query: str, wanted: Callable[[Passage], bool], search: Search | None) -> str:
    asked = f"asked {query[:80]!r}"
    if search is None:
        return f"{asked}; its rank was not looked for"
    ranked = enumerate(search(query, DEPTH), 1)
    rank = next((rank for rank, passage in ranked if wanted(passage)), None)
    return f"{asked}; " + (f"it has rank {rank}" if rank is not None else f"it is not among the first {DEPTH}")


def _holds(text: str, value: str) -> bool:
    """Whether a value stands in a text as words of its own, in normal form."""
    return bool(inner := normalize_answer(value)) and f" {inner} " in f" {normalize_answer(text)} "


def _embedded_search(config: Mapping[str, Any]) -> Search | None:
    """BM25 over the embedded passages, where that is what the run searched; opened when it is first needed."""
    used = config.get("retriever") or {}
    if (used.get("kind"), used.get("corpus")) != ("bm25", "almanac"):
        return None
    from dragin_lab.retrieval.corpus import Corpus

    same = used.get("corpus_fingerprint") == Corpus.load().fingerprint  # of this edition's passages
    return (lambda query, k: _embedded_index().search(query, k)) if same else None


@cache
def _embedded_index() -> BM25:
    from dragin_lab.retrieval.bm25 import BM25
    from dragin_lab.retrieval.corpus import Corpus

    return BM25(Corpus.load())
