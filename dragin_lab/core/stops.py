"""What ends a draft: a sentence, the line that says the answer, and a trigger that fires while it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dragin_lab.core.answers import FORMS, Form, fold_phrase, thoughts
from dragin_lab.core.episode import Stop, Tokenizer
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trigger import Trigger
from dragin_lab.trace.draft import Draft

#: The rest of the first line that says something, up to its break or to a sentence with a phrase.
_LINE = r"[^\n]*?[^\W_][^\n]*?(?=\n|(?<=[.!?])\s+[^.!?\n]*{})"


@dataclass(frozen=True)
class FirstSentence(Stop):
    """Stop once the first sentence is settled; never with a pipeline whose sentence ends a prefix does not decide.

    With a ``tokenizer`` it is the first sentence of the text with special tokens, which the released code splits. One
    with the answer's ``phrase`` in it reaches to the end of its line, which ``AnswerLine`` finds.
    """

    pipeline: Pipeline
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)
    phrase: str = "\0"  # in no text

    def reached(self, draft: Draft) -> str | None:
        text = draft.text if self.tokenizer is None else self.tokenizer.decode(draft.ids.tolist(), special=True)
        first = [text[:stop] for _, stop in self.pipeline.complete(text)[:1]]
        return "sentence" if first and self.phrase not in fold_phrase(first[0], self.phrase) else None


@dataclass(frozen=True)
class Watch(Stop):
    """A trigger at work on a growing draft: stop as soon as a judged word scores above its threshold (Eq. 5).

    With ``resumed`` nothing fires before the draft's first sentence has ended. ``question`` and ``answer`` (the answer
    so far) are what the trigger may look at beside the draft.
    """

    trigger: Trigger
    pipeline: Pipeline
    resumed: bool = False
    question: str = field(default="", compare=False)
    answer: str = field(default="", compare=False)

    measured = True

    def reached(self, draft: Draft) -> str | None:
        draft = self.read(draft)
        if self.trigger.is_silent(draft) or not self.trigger.judge(draft, resumed=self.resumed).fires:
            return None
        return self.trigger.name

    def read(self, draft: Draft) -> Draft:
        """What the trigger looks at."""
        return draft.read_by(self.pipeline, self.question, self.answer, ended=False)


@dataclass(frozen=True)
class AnswerLine(Stop):
    """Stop once the final answer has ended, as ``form`` writes it; ``before`` is the answer so far."""

    tokenizer: Tokenizer = field(compare=False, repr=False)
    before: str = ""
    form: Form = FORMS["reasoning"]

    def reached(self, draft: Draft) -> str | None:
        text = self.before + lead(self.tokenizer, draft) + draft.text
        return "answer" if find_answer_end(text, self.form, ended=False) is not None else None


@dataclass(frozen=True)
class NextExample(Stop):
    """Stop once the model begins another example, as few-shot prompts invite it to (``PromptTemplate.until``)."""

    marks: tuple[str, ...]
    begun: bool = False  # whether the answer has any text before the draft

    def reached(self, draft: Draft) -> str | None:
        return "example" if find_next_example(draft.text, self.marks, self.begun) is not None else None


@dataclass(frozen=True)
class AnyOf(Stop):
    """Stop where the first of several stops is reached."""

    stops: tuple[Stop, ...]

    @property
    def measured(self) -> bool:  # type: ignore[override]
        return any(stop.measured for stop in self.stops)

    def reached(self, draft: Draft) -> str | None:
        return next((reason for stop in self.stops if (reason := stop.reached(draft))), None)


def find_next_example(text: str, marks: Sequence[str], begun: bool = False) -> int | None:
    """Where the text ends before another example begins (characters); None while none begins.

    A mark of white space, such as a line's end, counts where something stands before it: in the text, or ``begun``.
    """
    first = 0 if begun else len(text) - len(text.lstrip())
    places = [place for mark in marks if (place := text.find(mark, 0 if mark.strip() else first)) >= 0]
    return len(text[: min(places)].rstrip()) if places else None


def lead(tokenizer: Tokenizer, draft: Draft) -> str:
    """The space before a draft's text that decoding it by itself drops (SentencePiece vocabularies)."""
    first = tokenizer.tokens(draft.ids[:1].tolist())
    opens = bool(tokenizer.marker) and bool(first) and first[0].startswith(tokenizer.marker)
    return " " if opens and not draft.text.startswith(" ") else ""


def find_answer_end(text: str, form: Form = FORMS["reasoning"], *, ended: bool) -> int | None:
    """Where the final answer ends in ``text``: by its mark, with its line, or where it is stated again; None: not yet.

    What a thinking model says before it answers is not its answer.
    """
    start = max((stop for _, stop in thoughts(text)), default=0)
    place = fold_phrase(text, form.phrase).find(form.phrase, start)
    if place < 0:
        return None
    if form.closes:
        close = text.find(form.closes, place)
        return None if close < 0 else close + len(form.closes)
    line = re.compile(_LINE.format(re.escape(form.phrase)), re.IGNORECASE).search(
        text + "\n" * ended, place + len(form.phrase)
    )
    return None if line is None else len(line[0].rstrip()) + line.start()
