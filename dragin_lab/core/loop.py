"""What the loops of both variants share: steps, searches, how an episode ends, the answer read from its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.answers import ANSWER_PIECES, cut_prediction, extract_answer, score_answer
from dragin_lab.core.episode import Episode, SoFar, Stop, Tokenizer, search, write
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trace import Continuation, Decision, Prompt, Query, Step, Trace

if TYPE_CHECKING:
    from dragin_lab.core.method import Method


@dataclass(frozen=True)
class FirstSentence:
    """Stop once the first sentence is settled; never with a pipeline whose sentence ends a prefix does not decide.

    With a ``tokenizer`` it is the first sentence of the text with special tokens, which the released code splits.
    """

    pipeline: Pipeline
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)

    def reached(self, so_far: SoFar) -> str | None:
        text = so_far.text if self.tokenizer is None else self.tokenizer.decode(so_far.ids, special=True)
        return "sentence" if self.pipeline.complete(text.lstrip()) else None


@dataclass
class Need:
    """What a query formulator may look at, once it is known that information is missing.

    ``words`` and ``hits`` (same length) are those of ``sentence``; ``pieces`` and ``doubt`` (1 - p, same length) too.
    """

    context: str  # question, answer so far and what is kept of the draft
    before: str  # the same as the released code joins them for QFS, empty parts and all
    sentence: str  # the text that lacks information
    words: list[str]
    hits: np.ndarray  # (w,) bool
    pieces: list[str]  # decoded one by one
    doubt: np.ndarray  # (pieces,) float64
    chunk: str | None = None  # what a search-first loop wrote last
    note: str = ""  # what stands in for hits the trigger does not give


@dataclass
class Loop:
    """One episode: a method at work on ``trace.question``."""

    method: Method
    trace: Trace
    template: PromptTemplate
    tokenizer: Tokenizer
    window: int | None = None
    question: str = field(init=False)

    def __post_init__(self) -> None:
        self.question = self.trace.question.text

    def new_step(self) -> Step:
        step = Step(len(self.trace.steps))
        self.trace.steps.append(step)
        return step

    def write(
        self, step: Step, prompt_max: int, stop: Stop | None = None, *, with_passages: bool = False, **options: Any
    ) -> Episode[Continuation]:
        """Draft behind the step's prompt (or its prompt with passages) and note a window that was overrun."""
        prompt = step.passages_prompt if with_passages else step.prompt
        assert prompt is not None
        made = yield from write(prompt, prompt_max, stop, **options)
        step.notes.extend(self._overrun(made))
        return made

    def _overrun(self, made: Continuation) -> list[str]:
        total = len(made.prompt_ids) + len(made)
        if self.window is None or total <= self.window:
            return []
        return [f"prompt and text have {total} pieces, more than the model's window of {self.window}"]

    def extraction_prompt(self, tail: str) -> Prompt:
        """What the answer is asked for behind, where the text has none."""
        return self.template.render(self.question, tail)

    def retrieve(self, step: Step, query: Query) -> Episode[None]:
        """Cut the query to the pieces the variant sends, search, and record both."""
        query.sent = self.sendable(query.text)
        step.query = query
        step.passages = tuple((yield from search(query.sent, self.method.top_k)))
        if len(step.passages) < self.method.top_k:
            step.notes.append(f"asked for {self.method.top_k} passages, found {len(step.passages)}")

    def sendable(self, text: str) -> str:
        """What of a query's text is sent to the retriever: its last pieces, where the variant cuts it."""
        limit = self.method.query_pieces
        if limit is None:
            return text
        return self.tokenizer.decode(self.tokenizer.encode(text, special=False)[-limit:], special=False)

    def scheduled(self, step: Step, reason: str) -> None:
        """The decision of a trigger that looks at no draft."""
        step.decision = Decision(retrieve=True, reason=reason)

    def finish(self) -> Episode[None]:
        """Read the answer from the text; ask for one where the text has none (Appendix B; reference-behaviour §6)."""
        form = self.template.shape
        text = cut_prediction(self.trace.text.strip())
        if form.phrase not in text:
            text += form.request
            self.trace.extraction_prompt = self.extraction_prompt(" " + text)
            made = yield from write(self.trace.extraction_prompt, ANSWER_PIECES)
            self.trace.extraction = made
            self.trace.notes.extend(self._overrun(made))
            text = cut_prediction(text + made.raw_text.strip(), at_start=True)
        self.trace.answer = extract_answer(text, self.template.answer_rule, form.phrase)
        if self.trace.question.golds:
            self.trace.scores = score_answer(self.trace.answer, self.trace.question.golds)
