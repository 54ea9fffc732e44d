"""Episodes: generators that ask for drafts, attention maps and searches, and are sent the answers.

An episode does no I/O: ``draft = yield Write(...)`` waits until a driver has served the request. So
one method runs one question at a time, many side by side in one batch or on a cluster, and is
tested with scripted answers.
"""

from __future__ import annotations

import re
import string
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dragin_lab.core.answers import FORMS, HIDDEN, Form, fold_phrase, hide_spans, thoughts
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trigger import Trigger, Verdict
from dragin_lab.trace.trace import Draft, Passage, Prompt

T = TypeVar("T")
#: The rest of the first line that says something, up to its break or to a sentence with a phrase.
_LINE = r"[^\n]*?[^\W_][^\n]*?(?=\n|(?<=[.!?])\s+[^.!?\n]*{})"


@dataclass(frozen=True)
class Stop:
    """What ends a draft before its length limit, decided by its tokens so far. This one never does.

    A driver asks after every token, in order. Every stop is a frozen dataclass, so it can be
    compared, hashed and replayed on stored text. ``measured`` says whether it reads more of a draft
    than ids and text.
    """

    measured = False

    def reached(self, draft: Draft) -> str | None:
        """The reason to stop here, or None to go on."""
        return None


@dataclass(frozen=True)
class Bias:
    """Added to the logits of the tokens that ``opening`` may begin with, after a space or not; -inf
    forbids them.

    It holds for the tokens ``first <= t < stop`` of a draft; ``stop=None``: to its end. What is
    measured on the tokens (entropy, log-probability, alternatives) stays that of the raw logits.
    """

    opening: str
    value: float
    first: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Write:
    """Ask the model to go on after a prompt; answered with a ``Draft``."""

    kind = "draft"  # what its seconds are recorded as
    prompt: Prompt
    max_new_tokens: int
    stop: Stop = Stop()
    attention: bool = False  # keep ``Draft.rows``
    among: bool = False  # keep ``Draft.among``
    hidden: int | str | None = None  # the layer whose hidden states are kept, "last" or an index
    bias: tuple[Bias, ...] = ()
    # the ids that the draft begins with, whatever the model would have chosen
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Attend:
    """Ask for the attention map of some ids by themselves; answered with an array (h, n, n)
    float32.
    """

    kind = "attend"
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """Ask for the k best passages; answered with a list of at most k ``Passage``."""

    kind = "search"
    query: str
    k: int


Request = Write | Attend | Search
Episode = Generator[Request, Any, T]


class Tokenizer(Protocol):
    """The part of a tokenizer that methods need."""

    #: The string that marks a space at the start of a token ("▁" or "Ġ"), or "" where the
    #: vocabulary has none.
    marker: str

    @property
    def end_marks(self) -> tuple[str, ...]:
        """The marks that end a text of the model ("</s>", "<|im_end|>"), the longest first."""

    @property
    def chats(self) -> bool:
        """Whether there is a chat template."""

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text, with the special tokens that stand before it (BOS, ...) or without any.

        None closes it: the model writes on after its last token.
        """

    def decode(self, ids: Sequence[int], special: bool) -> str:
        """Text of ids, with special tokens written out or skipped."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Raw vocabulary strings."""

    def chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """(role, text) turns as the chat template writes them, up to where the assistant begins to
        speak.

        Raises ``SettingError`` where there is none or where it refuses the turns.
        """


class Retriever(Protocol):
    """Anything that finds passages for a query; ``Lab`` takes one, or a plain function of the same
    two arguments.

    A custom retriever may answer with texts, (title, text) pairs or dictionaries too. It may have
    ``search_many(queries, k)``, which answers several queries at once, and ``provenance()``, a
    dictionary of plain data by which a run directory knows it again. Without the latter it is known
    by its answers to a few fixed queries.
    """

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first; their ids differ. An exception ends this question, not
        the run.
        """


# -- what ends a draft -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstSentence(Stop):
    """Stop once the first sentence is settled (``Pipeline.complete``).

    A sentence with the answer's ``phrase`` goes on to the end of its line, where ``AnswerLine``
    stops. With a ``tokenizer`` the text has its special tokens, as the released code splits it.
    """

    pipeline: Pipeline
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)
    phrase: str = "\0"  # in no text

    def reached(self, draft: Draft) -> str | None:
        text = draft.text
        if self.tokenizer is not None:
            text = self.tokenizer.decode(draft.ids.tolist(), special=True)
        settled = self.pipeline.complete(text)
        if not settled:
            return None
        first = text[: settled[0][1]]
        return None if self.phrase in fold_phrase(first, self.phrase) else "sentence"


@dataclass(frozen=True)
class Watch(Stop):
    """A trigger at work on a growing draft: stop as soon as a judged word scores above its
    threshold (Eq. 5).

    With ``resumed`` nothing fires before the draft's first sentence has ended. ``question`` and
    ``answer`` (the answer so far) are what the trigger may look at beside the draft.
    """

    trigger: Trigger
    pipeline: Pipeline
    resumed: bool = False
    question: str = field(default="", compare=False)
    answer: str = field(default="", compare=False)
    # the mark of the thought that the draft begins within
    thought: str = field(default="", compare=False)

    #: The draft that was judged last, so that words and sentences are found once.
    _judged: list[Draft] = field(default_factory=list, init=False, compare=False, repr=False)

    measured = True

    def reached(self, draft: Draft) -> str | None:
        draft = self.read(draft)
        if self.trigger.is_silent(draft) or not self.judge_so_far(draft).fires:
            return None
        return f"{self.trigger.name} fired"  # two words, so that no name is another reason

    def read(self, draft: Draft) -> Draft:
        """What the trigger looks at."""
        return draft.read_by(
            self.pipeline, self.question, self.answer, thought=self.thought, ended=False
        )

    def judge_so_far(self, draft: Draft) -> Verdict:
        """The verdict on what was ``read`` of a draft. The same draft, longer, costs only what
        was added to it.
        """
        draft.earlier = next(iter(self._judged), None)
        verdict = self.trigger.judge(draft, resumed=self.resumed)
        draft.earlier = None
        self._judged[:] = [draft]
        return verdict


@dataclass(frozen=True)
class AnswerLine(Stop):
    """Stop once the final answer has ended, as ``form`` writes it; ``before`` is what the model
    has written so far.
    """

    tokenizer: Tokenizer = field(compare=False, repr=False)
    before: str = ""
    form: Form = FORMS["reasoning"]

    def reached(self, draft: Draft) -> str | None:
        text = self.before + find_lead(self.tokenizer, draft) + draft.text
        return "answer" if find_answer_end(text, self.form, ended=False) is not None else None


@dataclass(frozen=True)
class NextExample(Stop):
    """Stop once the model begins another example, as few-shot prompts invite it to
    (``PromptTemplate.until``).
    """

    marks: tuple[str, ...]
    begun: bool = False  # whether the answer has any text before the draft
    thought: str = ""  # the mark of the thought that the draft begins within

    def reached(self, draft: Draft) -> str | None:
        return None if self.find_end(draft.text) is None else "example"

    def find_end(self, text: str) -> int | None:
        """Where a draft's text ends before another example begins (characters); None while none
        begins. No thought counts.

        A mark of white space, such as a line's end, counts where something stands before it: in the
        text, or ``begun``.
        """
        text = hide_spans(text, thoughts(text, self.thought))
        first = 0 if self.begun else len(text) - len(text.lstrip(HIDDEN + string.whitespace))
        places = [text.find(mark, 0 if mark.strip() else first) for mark in self.marks]
        starts = [place for place in places if place >= 0]
        return len(text[: min(starts)].rstrip()) if starts else None


@dataclass(frozen=True)
class AnyOf(Stop):
    """Stop where the first of several stops is reached."""

    stops: tuple[Stop, ...]

    @property
    def measured(self) -> bool:  # type: ignore[override]
        return any(stop.measured for stop in self.stops)

    def reached(self, draft: Draft) -> str | None:
        return next((reason for stop in self.stops if (reason := stop.reached(draft))), None)


def find_lead(tokenizer: Tokenizer, draft: Draft) -> str:
    """The space before a draft's text that decoding it by itself drops."""
    return find_space(tokenizer, draft.ids[:1].tolist(), draft.text)


def find_space(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> str:
    """The space that the first of some ids marks and their text lacks (SentencePiece
    vocabularies); else "".
    """
    first = "".join(tokenizer.tokens(ids[:1]))
    marked = tokenizer.marker and first.startswith(tokenizer.marker)
    return " " if marked and not text.startswith(" ") else ""


def find_answer_end(text: str, form: Form = FORMS["reasoning"], *, ended: bool) -> int | None:
    """Where the final answer ends in ``text``: by its mark, with its line, or where it is stated
    again; None: not yet.

    What a thinking model says before it answers is not its answer. One that is to end by a mark and
    goes on in another line without it ends with its own.
    """
    start = max((stop for _, stop in thoughts(text)), default=0)
    place = fold_phrase(text, form.phrase).find(form.phrase, start)
    if place < 0:
        return None
    if form.closes and (close := text.find(form.closes, place)) >= 0:
        return close + len(form.closes)
    line = re.compile(_LINE.format(re.escape(form.phrase)), re.IGNORECASE).search(
        text + "\n" * ended, place + len(form.phrase)
    )
    if line is None:
        return None
    if form.closes and not ended:  # the mark may stand in the next line
        rest = text[line.end() :].lstrip()
        if form.closes.startswith(rest):
            return None
    return len(line[0].rstrip()) + line.start()
