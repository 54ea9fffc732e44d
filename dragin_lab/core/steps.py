"""What every loop shares: steps, searches, how an episode ends, the answer read from its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dragin_lab.core.answers import ANSWER_TOKENS, cut_prediction, fold_phrase, without_end_marks, without_thoughts
from dragin_lab.core.episode import Episode, Never, Search, Stop, Tokenizer, Write
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.trace.trace import Decision, Draft, Prompt, Query, Step, Trace


@dataclass
class Loop:
    """One episode: a method at work on ``trace.question``."""

    method: Method
    trace: Trace
    template: PromptTemplate
    tokenizer: Tokenizer
    window: int | None = None
    question: str = field(init=False)
    released: ClassVar[bool] = False  # whether answers are read and scored as a released code does

    def __post_init__(self) -> None:
        self.question = self.trace.question.text

    def run(self) -> Episode[None]:
        """All turns, until ``trace.ended`` says how the episode ended; the answer is then read from ``trace.text``."""
        raise NotImplementedError

    def new_step(self) -> Step:
        step = Step(len(self.trace.steps))
        self.trace.steps.append(step)
        return step

    def write(
        self, step: Step, most: int, stop: Stop | None = None, *, with_passages: bool = False, **options: Any
    ) -> Episode[Draft]:
        """Write after the step's prompt (or its prompt with passages), and note a window that was overrun."""
        prompt = step.passages_prompt if with_passages else step.prompt
        assert prompt is not None
        continuation: Draft = yield Write(prompt, most, stop or Never(), **options)
        step.notes.extend(self._overrun(continuation))
        return continuation

    def _overrun(self, continuation: Draft) -> list[str]:
        total = len(continuation.prompt_ids) + len(continuation)
        if self.window is None or total <= self.window:
            return []
        return [f"prompt and text have {total} tokens, more than the model's window of {self.window}"]

    def extraction_prompt(self, text: str) -> Prompt:
        """The prompt that asks for the answer with ``text``, where the answer's text has none."""
        return self.template.render(self.question, " " + text)

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer (§6.2)."""
        continuation = yield from self.extract(text)
        text += continuation.raw_text.strip()
        return text if self.template.shape.closes else cut_prediction(text, at_start=True)

    def extract(self, text: str, stop: Stop | None = None) -> Episode[Draft]:
        """What the model writes after ``text``, recorded as the trace's extraction."""
        prompt = self.trace.extraction_prompt = self.extraction_prompt(text)
        continuation = self.trace.extraction = yield Write(prompt, ANSWER_TOKENS, stop or Never())
        self.trace.notes.extend(self._overrun(continuation))
        return continuation

    def retrieve(self, step: Step, query: Query) -> Episode[None]:
        """Search for a query, and record both."""
        query.sent = self.sendable(query.text)
        step.query = query
        step.passages = tuple((yield Search(query.sent, self.method.top_k)))
        if len(step.passages) < self.method.top_k:
            step.notes.append(f"asked for {self.method.top_k} passages, found {len(step.passages)}")

    def sendable(self, text: str) -> str:
        """What of a query's text is sent to the retriever."""
        return text

    def first_query(self) -> Query:
        """The query of a loop that searches before anything is written."""
        note = "the question: nothing is written yet" if self.method.formulator.needs else ""
        return Query(self.question, self.question, note=note)

    def schedule(self, step: Step, reason: str) -> None:
        """Record the decision of a trigger that reads no draft."""
        step.decision = Decision(retrieve=True, reason=reason)

    def finish(self) -> Episode[None]:
        """Read the answer from the text; ask for one where the text has none (Appendix B; reference-behaviour §6)."""
        form = self.template.shape
        text = without_thoughts(self.trace.text).strip()
        text = text if form.closes else cut_prediction(text)  # passages that were put in may hold the marks of a cut
        if form.phrase not in (text if self.released else fold_phrase(text, form.phrase)):
            text = yield from self.request_answer(text + form.request)
        text = without_end_marks(text, self._end_marks_in(text))
        self.trace.answer = self.template.read(text, released=self.released)
        self.trace.readable = self.template.readable(text)
        if golds := self.trace.question.golds:
            self.trace.scores = self.template.score(self.trace.answer, golds, released=self.released)

    def _end_marks_in(self, text: str) -> list[str]:
        """The model's end marks that a text holds; the answer is read without them."""
        return [mark for mark in self.tokenizer.end_marks if mark in text]
