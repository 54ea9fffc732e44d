"""Why an answer is wrong, by rule, from its prediction line and its trace.

The first of ``CAUSES`` that fits is the cause. What an answer needs is known where the facts of its
question are labelled (Almanac's are: the passages of those that the model could not know), and
where the titles of the gold passages are (HotpotQA, 2WikiMultihopQA). Elsewhere it is any passage
that holds the gold answer. Where none of this can be told there is no cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from dragin_lab.almanac import labels
from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.answers import normalize_answer
from dragin_lab.data.datasets import gold_titles
from dragin_lab.errors import DataError, SettingError
from dragin_lab.run.rundir import Facts, Line
from dragin_lab.study.attribution import Attribution, holds_value, is_attributed, plain_title
from dragin_lab.trace.trace import Passage, Trace

#: What can be wrong, in the order in which it is looked for.
CAUSES = {
    "failed": "the episode ended with an error",
    "unreadable": "no answer can be read from the text",
    "window": "the prompt outgrew the model's window, or passages were dropped to fit it",
    "never retrieved": "the episode searched for nothing",
    "not found": "it searched, and a passage that was needed was not among those found",
    "found": "every passage that was needed was found, and the answer is wrong all the same",
}


@dataclass(frozen=True)
class Cause:
    """Why an answer is wrong: ``kind`` is one of ``CAUSES``, ``why`` explains it for this answer
    in a line.
    """

    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}"


class _Need(NamedTuple):
    """A passage that an answer needs: ``what`` it states, for people, and how it is known."""

    what: str
    id: str = ""
    title: str = ""
    golds: Sequence[str] = ()

    def is_met(self, passage: Passage) -> bool:
        if self.id:
            return passage.id == self.id
        if self.title:
            return plain_title(passage.title) == plain_title(self.title)
        return any(holds_value(passage.text, gold) for gold in self.golds)


@dataclass
class CauseFinder:
    """Judges the answers of one data set, by what is known of its questions, by id."""

    labels: Mapping[str, Labelled] = field(default_factory=dict)
    titles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: str, config: Facts) -> CauseFinder:
        """What is known of a data set by its name: Almanac's labels, or the benchmarks' gold
        titles.
        """
        if dataset.startswith("almanac/"):
            name = dataset.removeprefix("almanac/")
            split = config["dataset"].get("split") or "test"
            with suppress(SettingError):  # a benchmark of an earlier edition of the world
                known = labels(name.removesuffix(f"-{split}"), split)
                return cls({labelled.id: labelled for labelled in known})
        else:
            with suppress(DataError):  # not on this machine, or of another format
                return cls(titles=gold_titles(dataset))
        return cls()

    def label(self, id: str, question: str) -> Labelled | None:
        """The labels of a question; None for another question of this id, such as one of an
        earlier edition.
        """
        labelled = self.labels.get(id)
        if labelled is None or labelled.question.strip() != question.strip():
            return None
        return labelled

    def cause(self, line: Line, trace: Trace | None = None) -> Cause | None:
        """Why the answer of a prediction line is wrong; None where what was recorded does not tell.

        A ``trace`` has the titles and texts of what was found, and what was used of it.
        """
        if line["ended"] == "error":
            return Cause("failed", str(line.get("error", "")).partition("\n")[0][:200])
        if not line["readable"]:
            return Cause("unreadable", _describe_end(line))
        if trace is not None and trace.text != line["text"]:
            trace = None  # of another answer to this question
        lost = line.get("window", {})
        if lost.get("beyond") or lost.get("passages"):
            return Cause("window", _describe_loss(lost))
        golds = [gold for gold in line["gold"] if gold] or [""]
        difference = f"{line['answer'][:60]!r}, not {golds[0][:60]!r}"
        if not line["retrievals"]:
            return Cause("never retrieved", difference)
        needs = self._list_needs(line, golds)
        passages = _list_passages(line, trace, needs)
        if needs is None or passages is None:
            return None
        for need in needs:
            if not any(map(need.is_met, passages)):
                return Cause("not found", f"{difference}; no passage found {need.what}")
        needed = f"{len(needs)} passage{'s' * (len(needs) != 1)}"
        return Cause("found", f"{difference}; needed and found: {needed}{_say_used(trace, needs)}")

    def _list_needs(self, line: Line, golds: Sequence[str]) -> list[_Need] | None:
        """What an answer needs; None where nobody knows."""
        labelled = self.label(line["id"], line["question"])
        if labelled is not None:
            missing = [fact for fact in labelled.facts if fact.missing]
            return [
                _Need(f"states {fact.value!r}, {fact.relation} of {fact.subject}", id=fact.passage)
                for fact in missing
            ]
        if titles := self.titles.get(line["id"]):
            return [_Need(f"is {title!r}", title=title) for title in titles]
        if {normalize_answer(gold) for gold in golds} <= {"yes", "no", ""}:
            return None  # any passage may hold these
        return [_Need(f"holds {golds[0][:60]!r}", golds=golds)]


def _describe_end(line: Line) -> str:
    end = f"the text ends with {line['text'].strip()[-60:]!r}"
    return f"{end}, after {line['tokens']} tokens" if line["ended"] == "length" else end


def _describe_loss(lost: Mapping[str, int]) -> str:
    passages = lost.get("passages", 0)
    beyond = lost.get("beyond", 0)
    return f"{passages} passages did not fit, {beyond} prompts outgrew it"


def _list_passages(
    line: Line, trace: Trace | None, needs: Sequence[_Need] | None
) -> list[Passage] | None:
    """What was found; None where the line alone does not have what the needs are known by."""
    if trace is not None:
        return [passage for step in trace.steps for passage in step.passages]
    if needs is None or not all(need.id for need in needs):
        return None
    return [Passage(id, "", "") for ids in line["passages"] for id in ids]


def _say_used(trace: Trace | None, needs: Sequence[_Need]) -> str:
    """Of an attributed trace, whether some word of the answer is from what was needed."""
    if trace is None or not needs or not is_attributed(trace):
        return ""
    for row in Attribution(trace).passages.itertuples():
        passage = Passage(row.id, row.title, row.text)
        if row.words and any(need.is_met(passage) for need in needs):
            return ", used"
    return ", not used"
