"""How answers are written: as reasoning, with search calls in it, as follow-up questions (FLARE, Prompts D.2, D.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dragin_lab.checks import text
from dragin_lab.core.answers import ANSWER_PHRASE, ANSWER_PROMPT, extract_answer, is_readable, read_answer

#: What opens and closes a search call, and what stands around a follow-up question.
CALL_OPENS, CALL_CLOSES = "[Search(", ")]"
FOLLOW_UP, INTERMEDIATE = "Follow up:", "Intermediate answer:"
#: Search-R1's task (github.com/PeterGriffinJin/Search-R1, infer.py).
SEARCH_R1 = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new "
    "information. After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query "
    "</search> and it will return the top searched results between <information> and </information>. You can search as "
    "many times as your want. If you find no further external knowledge needed, you can directly provide the answer "
    "inside <answer> and </answer>, without detailed illustrations. For example, <answer> Beijing </answer>. "
    "Question: {question}\n"
)


@dataclass(frozen=True)
class Exemplar:
    """A worked example: question, reasoning in sentences, final answer."""

    question: str
    rationale: str
    answer: str

    def __post_init__(self) -> None:
        for label in ("question", "rationale", "answer"):
            text(f"{label} of an Exemplar", getattr(self, label))

    @property
    def text(self) -> str:
        """The example as plain reasoning, as it stands in a prompt."""
        return FORMS["reasoning"].exemplar(self)


@dataclass(frozen=True)
class Form:
    """The fixed words of one way to answer.

    ``label`` stands after the question, ``closing`` before an exemplar's final answer. ``phrase`` is what extraction
    looks for (the final answer begins one character after it) and ``request`` what asks a text without it for one.
    ``shown_by`` is what exemplars of this form hold ("" where any will do); those without it get ``plain_label``.
    ``closes`` ends the final answer, where its sentence does not. ``task`` is the whole prompt with ``{question}`` in
    it, for models that were trained on one: exemplars and layout then have no say.
    """

    label: str
    closing: str
    phrase: str
    request: str
    shown_by: str = ""
    plain_label: str = ""
    closes: str = ""
    task: str = ""

    def label_of(self, exemplar: Exemplar) -> str:
        """What stands after an exemplar's question."""
        return self.label if self.shown_by in exemplar.rationale else self.plain_label or self.label

    def worked(self, exemplar: Exemplar) -> str:
        """An exemplar's reasoning and final answer, as they stand after its label."""
        reasoning = exemplar.rationale.removeprefix(self.label).lstrip()
        return f"{reasoning}{self.closing}{exemplar.answer}."

    def exemplar(self, exemplar: Exemplar) -> str:
        """An exemplar as it stands in a prompt."""
        return f"Question: {exemplar.question}\n{self.label_of(exemplar)} {self.worked(exemplar)}\n"

    def read(self, text: str, rule: str, *, released: bool = False) -> str:
        """The final answer in a whole text, as a rule of ``answers.ANSWER_RULES`` reads it."""
        return (extract_answer if released else read_answer)(self._told(text), rule, self.phrase)

    def readable(self, text: str, rule: str) -> bool:
        """Whether the text states an answer in this form (``answers.is_readable``)."""
        return is_readable(self._told(text), rule, self.phrase)

    def _told(self, text: str) -> str:
        """The last phrase and what stands between its marks, where the form has any: a model may name them before."""
        if not self.closes:
            return text
        inside = text.rpartition(self.phrase)[2].partition(self.closes)[0]
        return f"{self.phrase} {inside}" if self.phrase in text else ""

    def shown(self, exemplars: Sequence[Exemplar]) -> bool:
        """Whether exemplars teach this form."""
        return not self.shown_by or any(self.shown_by in exemplar.rationale for exemplar in exemplars)


_REASONED = (" So the answer is ", ANSWER_PHRASE, ANSWER_PROMPT)
FORMS = {
    "reasoning": Form("Answer:", *_REASONED),
    "search": Form(
        "Answer (with step-by-step & Search):",
        *_REASONED,
        shown_by=CALL_OPENS,
        plain_label="Answer (with step-by-step):",
    ),
    "self-ask": Form(
        "Are follow up questions needed here:",
        "\nSo the final answer is: ",
        "So the final answer is",
        "\nSo the final answer is:",
        shown_by=FOLLOW_UP,
    ),
    "search-r1": Form("", " ", "<answer>", "\n<answer>", closes="</answer>", task=SEARCH_R1),
}
