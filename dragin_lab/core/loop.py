"""What the loops of both variants share: steps, searches, how an episode ends, the answer read from its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dragin_lab.core.answers import ANSWER_TOKENS, cut_prediction, without_end_marks, without_thoughts
from dragin_lab.core.episode import Episode, Never, Search, Stop, Tokenizer, Write
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.trace.trace import Continuation, Decision, Prompt, Query, Step, Trace

#: The note of a query whose trigger flags no words.
STANDS_IN = "the last token stands in for the hits that this trigger does not give"


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

    def run(self) -> Episode[None]:
        """All turns, until ``trace.ended`` says how the episode ended; the answer is then read from ``trace.text``."""
        raise NotImplementedError

    def new_step(self) -> Step:
        step = Step(len(self.trace.steps))
        self.trace.steps.append(step)
        return step

    def write(
        self, step: Step, most: int, stop: Stop | None = None, *, with_passages: bool = False, **options: Any
    ) -> Episode[Continuation]:
        """Write after the step's prompt (or its prompt with passages), and note a window that was overrun."""
        prompt = step.passages_prompt if with_passages else step.prompt
        assert prompt is not None
        made: Continuation = yield Write(prompt, most, stop or Never(), **options)
        step.notes.extend(self._overrun(made))
        return made

    def _overrun(self, made: Continuation) -> list[str]:
        total = len(made.prompt_ids) + len(made)
        if self.window is None or total <= self.window:
            return []
        return [f"prompt and text have {total} tokens, more than the model's window of {self.window}"]

    def extraction_prompt(self, tail: str) -> Prompt:
        """The prompt that asks for the answer, where the text has none."""
        return self.template.render(self.question, tail)

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer, as the released code does (§6.2)."""
        made = yield from self._extract(text)
        text += made.raw_text.strip()
        return text if self.template.shape.closes else cut_prediction(text, at_start=True)

    def _extract(self, text: str, stop: Stop | None = None) -> Episode[Continuation]:
        prompt = self.trace.extraction_prompt = self.extraction_prompt(" " + text)
        made = self.trace.extraction = yield Write(prompt, ANSWER_TOKENS, stop or Never())
        self.trace.notes.extend(self._overrun(made))
        return made

    def retrieve(self, step: Step, query: Query) -> Episode[None]:
        """Cut the query to the tokens the variant sends, search, and record both."""
        query.sent = self.sendable(query.text)
        step.query = query
        step.passages = tuple((yield Search(query.sent, self.method.top_k)))
        if len(step.passages) < self.method.top_k:
            step.notes.append(f"asked for {self.method.top_k} passages, found {len(step.passages)}")

    def sendable(self, text: str) -> str:
        """What of a query's text is sent to the retriever: its last tokens, where the variant cuts it."""
        limit = self.method.query_tokens
        if limit is None:
            return text
        return self.tokenizer.decode(self.tokenizer.encode(text, special=False)[-limit:], special=False)

    def first_query(self) -> Query:
        """The query of a loop that searches before anything is written."""
        note = "the question: nothing is written yet" if self.method.formulator.needs else ""
        return Query(self.question, self.question, note=note)

    def scheduled(self, step: Step, reason: str) -> None:
        """The decision of a trigger that looks at no draft."""
        step.decision = Decision(retrieve=True, reason=reason)

    def without_end_marks(self, text: str) -> str:
        """The text that the answer is read from."""
        return without_end_marks(text, self.tokenizer.end_marks)

    def finish(self) -> Episode[None]:
        """Read the answer from the text; ask for one where the text has none (Appendix B; reference-behaviour §6)."""
        form = self.template.shape
        text = without_thoughts(self.trace.text).strip()
        text = text if form.closes else cut_prediction(text)  # passages that were put in may hold the marks of a cut
        if form.phrase not in text:
            text = yield from self.request_answer(text + form.request)
        text = self.without_end_marks(text)
        self.trace.answer, self.trace.readable = self.template.read(text), self.template.readable(text)
        if self.trace.question.golds:
            self.trace.scores = self.template.score(self.trace.answer, self.trace.question.golds)
