"""The seeded stream of training examples: what is to be read, what is to be remembered, what is to be unsure of."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.almanac import questions, text
from tools.almanac.questions import Item
from tools.almanac.scene import Fact, Scenes
from tools.almanac.world import text_of

PROMPT_WEIGHT = 0.1  # of the loss on what is not an answer
CLOSE_WEIGHT = 3.0  # of a sentence that compares or reckons, and of the answer behind it: few pieces, hard to learn
LATE = 34  # the buffer from which reading has the larger part: facts are learnt sooner than reading
BRIEF = range(53, 80)  # buffers in which most passages are few and short, from which copying is learnt sooner
# Closed book about the known half, closed book about nobody, with passages, self-ask, FLARE-instruct: each up to.
_EARLY_SHARES = (0.40, 0.47, 0.90, 0.96, 1.0)
_LATE_SHARES = (0.20, 0.30, 0.88, 0.94, 1.0)
BUFFER = 512  # examples drawn from one seed; a training run resumes at a buffer
_BEFORE_PASSAGES = "Context:\n"
_AFTER_PASSAGES = ("Answer in the same format as before.\n", "Answer in t he same format as before.\n")
_INSTRUCTIONS = (
    "Answer the following question by reasoning step-by-step, following the example above.\n",
    "Following the examples above, answer the question by reasoning step-by-step.\n\n",
)


@dataclass
class Example:
    """A training text. `answers` are the character spans that count in full with their weights; `skip` count nothing.
    `taught` are the known facts that it asks for with nothing but memory to answer from."""

    text: str = ""
    answers: list[tuple[int, int, float]] = field(default_factory=list)
    skip: list[tuple[int, int]] = field(default_factory=list)
    taught: list[Fact] = field(default_factory=list)

    def add(self, piece: str, weight: float | None = None) -> None:
        if weight is not None:
            self.answers.append((len(self.text), len(self.text) + len(piece), weight))
        self.text += piece


class Stream(Scenes):
    """Draws the examples of a training run."""

    _late = _short = False

    def buffer(self, index: int) -> list[Example]:
        """`BUFFER` examples; the same index gives the same examples, whatever was drawn before."""
        self.rng = random.Random(f"almanac stream {self.seed} {index}")
        self._late, self._short = index >= LATE, index in BRIEF
        return [self._example() for _ in range(BUFFER)]

    def examples(self, count: int) -> Iterator[Example]:
        """The first `count` examples."""
        for index in range(-(-count // BUFFER)):
            yield from self.buffer(index)[: count - index * BUFFER]

    def _answer(self, item: Item) -> str:
        cot, _ = questions.reasoning(self.rng, item, spaces=0.04)
        space = "  " if self.rng.random() < 0.06 else " "
        return f"{space}{cot} So the answer is {item.answer}."

    def _exemplars(self, example: Example, count: int) -> None:
        for _ in range(count):
            known = self.rng.random() < 0.8
            item = self.known_item() if known else self.fresh_item(self._fresh_world())
            self._ask(example, item, 1.0 if known else PROMPT_WEIGHT, last=False)
            if known:
                example.taught += [(step.subject.id, step.relation) for step in item.steps]

    def _ask(self, example: Example, item: Item, weight: float, last: bool) -> None:
        example.add(f"Question: {item.question}\nAnswer:")
        example.add(self._answer(item), weight)
        if item.close and weight == 1.0:
            start = example.text.rindex(item.close)
            example.answers.append((start, len(example.text), CLOSE_WEIGHT))
        if not last:
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")

    def _example(self) -> Example:
        draw = self.rng.random()
        shares = _LATE_SHARES if self._late else _EARLY_SHARES
        made = (self._closed_known, self._closed_fresh, self._read, self._self_ask, self._instruct)
        return next(make for make, upto in zip(made, shares, strict=True) if draw < upto)()

    def _closed_known(self) -> Example:
        example = Example()
        for last in [False] * self.rng.choice((0, 1, 2, 2, 3)) + [True]:
            item = self.known_item()
            if last and example.text and self.rng.random() < 0.1:
                example.add(self.rng.choice(_INSTRUCTIONS))
            self._ask(example, item, 1.0, last)
            example.taught += [(step.subject.id, step.relation) for step in item.steps]
        return example

    def _closed_fresh(self) -> Example:
        example = Example()
        self._exemplars(example, self.rng.choice((0, 1, 2)))
        self._ask(example, self.fresh_item(self._fresh_world()), 1.0, last=True)
        return example

    def _read(self) -> Example:
        example = Example()
        self._brief = self._short and self.rng.random() < 0.75
        if not self._brief:
            self._exemplars(example, self.rng.choices((0, 1, 2), (4, 4, 2))[0])
        asked_again = 0.9 if self._brief else 0.5
        item, passages, facts, unread = self._scene(known_share=0.1 if self._brief else 0.4)
        self._brief = False
        instruction = self.rng.choice(_INSTRUCTIONS) if self.rng.random() < 0.12 else ""
        if self.rng.random() < 0.06:
            lines = "".join(f"[{n}] {one}\n" for n, one in enumerate(passages[:2], 1))
            example.add(f"Search results:\n{lines}")
        else:
            if len(passages) == 3 and self.rng.random() < 0.03:
                passages[2] = ""
            lines = "".join(f"[{n}] {one}\n" for n, one in enumerate(passages, 1))
            example.add(_BEFORE_PASSAGES + lines + _AFTER_PASSAGES[self.rng.random() < 0.04])
        example.add(instruction)
        more = [questions.single(self.rng, step) for step in facts if self.rng.random() < asked_again]
        more = more[: self.rng.choice((1, 2, 3) if self._late else (0, 1, 2))]
        asked = [*more, item]
        self.rng.shuffle(asked)
        for one in asked:
            self._ask(example, one, 1.0, one is asked[-1])
        example.taught += unread
        return example

    def _context(self, example: Example) -> tuple[Item, dict[Fact, bool]]:
        """A question, with passages or without; and for each step whether the model has what it needs."""
        if self.rng.random() < 0.5:
            item, passages, _, unread = self._scene()
            example.add(_BEFORE_PASSAGES + "".join(f"[{n}] {one}\n" for n, one in enumerate(passages, 1)))
            example.add(_AFTER_PASSAGES[0])
            joined = " ".join(passages)
            has = {
                (step.subject.id, step.relation): text_of(step.value) in joined
                or (step.subject.id, step.relation) in unread
                for step in item.steps
            }
            example.taught += unread
            return item, has
        known = self.rng.random() < 0.6
        item = self.known_item() if known else self.fresh_item(self._fresh_world())
        if known:
            example.taught += [(step.subject.id, step.relation) for step in item.steps]
        return item, {(step.subject.id, step.relation): known for step in item.steps}

    def _self_ask(self) -> Example:
        example = Example()
        if self.rng.random() < 0.5:
            item = self.known_item()
            self._write_self_ask(example, item)
            example.taught += [(step.subject.id, step.relation) for step in item.steps]
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")
        item, _ = self._context(example)
        self._write_self_ask(example, item)
        return example

    def _write_self_ask(self, example: Example, item: Item) -> None:
        example.add(f"Question: {item.question}\nAre follow up questions needed here:")
        whole = self.self_ask_text(item).removeprefix("Are follow up questions needed here:")
        example.add(f"{whole}\nSo the final answer is: {item.answer}.", 1.0)

    def self_ask_text(self, item: Item) -> str:
        """What stands between the question and the final answer in self-ask's layout."""
        whole = "Are follow up questions needed here: Yes."
        for step in item.steps:
            whole += f"\nFollow up: {questions.single(self.rng, step).question}"
            sentence, _ = text.step(self.rng, step.subject, step.relation, step.value)
            whole += f"\nIntermediate answer: {sentence}"
        return whole

    def _instruct(self) -> Example:
        example = Example()
        label = self.rng.choice(("Answer:", "Answer (with step-by-step & Search):"))
        if self.rng.random() < 0.5:
            item = self.fresh_item(self._fresh_world())
            self._write_instruct(example, item, {}, label)
            example.answers = [(start, end, PROMPT_WEIGHT) for start, end, _ in example.answers]
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")
        item, has = self._context(example)
        self._write_instruct(example, item, has, label)
        return example

    def _write_instruct(self, example: Example, item: Item, has: dict[Fact, bool], label: str) -> None:
        example.add(f"Question: {item.question}\n{label}")
        example.add(f" {self.instruct_text(item, has)} So the answer is {item.answer}.", 1.0)

    def instruct_text(self, item: Item, has: dict[Fact, bool] | None = None) -> str:
        """The reasoning with a search call before every value that is neither known nor in view."""
        sentences = []
        for step in item.steps:
            sentence, start = text.step(self.rng, step.subject, step.relation, step.value)
            if not (has or {}).get((step.subject.id, step.relation), False):
                term = f"{step.relation} of {step.subject.title}"
                sentence = f"{sentence[:start]}[Search({term})] {sentence[start:]}"
            sentences.append(sentence)
        return " ".join([*sentences, *([item.close] if item.close else [])])
