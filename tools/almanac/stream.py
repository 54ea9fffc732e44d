"""The seeded stream of training examples: what is to be read, what is to be remembered, what is to be unsure of."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools.almanac import questions, text
from tools.almanac.drills import AFTER_PASSAGES, BEFORE_PASSAGES, WORDS, Drills, Example
from tools.almanac.questions import Item
from tools.almanac.scene import Fact
from tools.almanac.world import text_of

BUFFER = 512  # examples drawn from one seed; a training run resumes at a buffer
_SKIPPED_PASSAGES = "Answer in t he same format as before.\n"  # as the released code writes it
_INSTRUCTIONS = (
    "Answer the following question by reasoning step-by-step, following the example above.\n",
    "Following the examples above, answer the question by reasoning step-by-step.\n\n",
)
_WITH_SEARCH = "Answer (with step-by-step & Search):"
_ASKS_FROM = 186  # buffer from which calls of a search are written only where the prompt shows one or asks for it
_LABELS_FROM = 352  # buffer from which more films have a label: it was left out now and then
_LABELS_NAMES_FROM = 432  # and from which it is told to keep it in a conclusion
# From which buffer on: the shares of each sort of example; look-alikes in a drill, at most; length of passages.
_SORTS = (
    "restate",
    "quiz",
    "sums",
    "read",
    "known",
    "nobody",
    "self_ask",
    "instruct",
    "digits",
    "conclusions",
    "places",
    "bare",
)
_STAGES: tuple[tuple[int, tuple[int, ...], int, float], ...] = (
    (0, (46, 26, 10, 0, 18, 0, 0, 0), 2, 0.0),
    (6, (32, 36, 8, 6, 18, 0, 0, 0), 3, 0.0),
    (14, (16, 36, 8, 18, 18, 4, 0, 0), 4, 0.2),
    (24, (6, 28, 8, 30, 18, 5, 2, 3), 4, 0.6),
    (36, (3, 18, 6, 40, 18, 5, 5, 5), 4, 1.0),
    (48, (3, 18, 6, 36, 18, 5, 5, 5, 4), 4, 1.0),
    (168, (3, 16, 6, 34, 17, 5, 5, 4, 2, 8), 4, 1.0),
    (224, (3, 15, 6, 33, 16, 5, 5, 4, 2, 3, 8), 4, 1.0),
    (308, (3, 15, 6, 33, 16, 5, 4, 4, 2, 2, 3, 7), 4, 1.0),
    (432, (3, 15, 6, 33, 16, 5, 4, 4, 2, 7, 2, 4), 4, 1.0),
    (480, (3, 15, 6, 30, 17, 8, 4, 3, 2, 4, 2, 6), 4, 1.0),
    (600, (3, 15, 6, 29, 17, 9, 4, 2, 2, 7, 2, 4), 4, 1.0),
    (680, (3, 15, 6, 29, 17, 13, 4, 0, 2, 7, 2, 4), 4, 1.0),
)


class Stream(Drills):
    """Draws the examples of a training run."""

    asks = True  # whether a call of a search needs an example or a word in the prompt

    def buffer(self, index: int) -> list[Example]:
        """`BUFFER` examples; the same index gives the same examples, whatever was drawn before."""
        self.rng = random.Random(f"almanac stream {self.seed} {index}")
        _, shares, most, self.long = next(one for one in reversed(_STAGES) if index >= one[0])
        self.asks = index >= _ASKS_FROM
        self.labelled = Drills.labelled if index < _LABELS_FROM else 0.15
        self.labels_names = index >= _LABELS_NAMES_FROM
        made = {
            "restate": lambda: self.restate(most),
            "quiz": lambda: self.quiz(most),
            "sums": self.sums,
            "read": self._read,
            "known": self._closed_known,
            "nobody": self._closed_fresh,
            "self_ask": self._self_ask,
            "instruct": self._instruct,
            "digits": self.digits,
            "conclusions": self.conclusions,
            "places": self.places,
            "bare": self._bare,
        }
        return [made[one]() for one in self.rng.choices(_SORTS[: len(shares)], shares, k=BUFFER)]

    def examples(self, count: int) -> Iterator[Example]:
        """The first `count` examples."""
        for index in range(-(-count // BUFFER)):
            yield from self.buffer(index)[: count - index * BUFFER]

    def _known(self, example: Example, more: bool) -> None:
        """A question about the known half, with nothing but memory to answer from."""
        item = self.known_item()
        facts = [(step.subject.id, step.relation) for step in item.steps]
        self.answer(example, item, dict.fromkeys(facts, True), more)
        example.taught += facts

    def _nobody(self, example: Example, more: bool) -> None:
        """A question about entities that nobody can know: its values are drawn at random, to teach honest doubt."""
        self.answer(example, self.fresh_item(self._fresh_world()), {}, more, 0.3)

    def _bare(self) -> Example:
        """A question and its answer with nothing between them but spaces, as the released QFS reads a text."""
        example, known = Example(), self.rng.random() < 0.5
        item = self.known_item() if known else self.fresh_item(self._fresh_world())
        facts = [(step.subject.id, step.relation) for step in item.steps]
        layout = "{}" + self.rng.choice(("", " ", "  "))
        self.answer(example, item, dict.fromkeys(facts, known), more=False, weight=1.0 if known else 0.3, layout=layout)
        example.taught += facts if known else []
        return example

    def _exemplars(self, example: Example, count: int) -> None:
        for _ in range(count):
            (self._known if self.rng.random() < 0.8 else self._nobody)(example, more=True)

    def _instruction(self, example: Example) -> None:
        if self.rng.random() < 0.12:
            example.add(self.rng.choice(_INSTRUCTIONS))

    def _closed_known(self) -> Example:
        example = Example()
        for more in [True] * self.rng.choice((0, 1, 2, 2, 3)) + [False]:
            if not more and example.text:
                self._instruction(example)
            self._known(example, more)
        return example

    def _closed_fresh(self) -> Example:
        example = Example()
        self._exemplars(example, self.rng.choice((0, 1, 2)))
        self._nobody(example, more=False)
        return example

    def _passages(self, example: Example, passages: list[str]) -> None:
        """The passages as prompts have them; the released code leaves an empty line for one that is missing."""
        if len(passages) == 3 and self.rng.random() < 0.03:
            passages = [*passages[:2], ""]
        begins = len(example.text)
        lines = "".join(f"[{n}] {one}\n" for n, one in enumerate(passages, 1))
        if self.rng.random() < 0.06:
            example.add(f"Search results:\n{lines}")
        else:
            example.add(BEFORE_PASSAGES + lines + (AFTER_PASSAGES if self.rng.random() < 0.96 else _SKIPPED_PASSAGES))
        example.find(self.written, begins)

    def _read(self) -> Example:
        example = Example()
        if self.long >= 0.5:
            self._exemplars(example, self.rng.choices((0, 1, 2), (3, 2, 5))[0])
        item, passages, has, unread = self.scene(known_share=0.25)
        self._passages(example, passages)
        self._instruction(example)
        self.answer(example, item, has, more=False)
        example.taught += unread
        return example

    def _context(self, example: Example) -> tuple[Item, dict[Fact, bool]]:
        """A question, with passages or without; and for each step whether the model has what it needs."""
        if self.rng.random() < 0.5:
            item, passages, has, unread = self.scene(known_share=0.4)
            self._passages(example, passages)
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
            facts = [(step.subject.id, step.relation) for step in item.steps]
            self._write_self_ask(example, item, dict.fromkeys(facts, True))
            example.taught += facts
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")
        self._write_self_ask(example, *self._context(example))
        return example

    def _write_self_ask(self, example: Example, item: Item, has: dict[Fact, bool]) -> None:
        example.add(f"Question: {item.question}\nAre follow up questions needed here:")
        whole = self.self_ask_text(item).removeprefix("Are follow up questions needed here:")
        self._weigh_values(example, item, has, f"{whole}\nSo the final answer is: {item.answer}.")

    def _weigh_values(self, example: Example, item: Item, has: dict[Fact, bool], written: str) -> None:
        """Add an answer in another form; the last place of each value that can be had counts in full."""
        at = len(example.text)
        example.add(written, 2 * WORDS)
        for step in item.steps:
            if has.get((step.subject.id, step.relation), False):
                value = text_of(step.value)
                begins = at + written.rindex(value)
                example.weigh(begins, len(value), 1.0)
                named = max(at, example.text.rfind(step.subject.name, at, begins))
                example.state(step.subject, step.relation, begins, len(value), named)

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
        label = self.rng.choice(("Answer:", _WITH_SEARCH))
        shown = self.rng.random() < 0.5
        if not shown and self.asks:
            label = _WITH_SEARCH
        if shown:
            self._write_instruct(example, self.fresh_item(self._fresh_world()), {}, label)
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")
        item, has = self._context(example)
        self._write_instruct(example, item, has, label)
        return example

    def _write_instruct(self, example: Example, item: Item, has: dict[Fact, bool], label: str) -> None:
        example.add(f"Question: {item.question}\n{label}")
        self._weigh_values(example, item, has, f" {self.instruct_text(item, has)} So the answer is {item.answer}.")

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
