"""Short exercises with many facts to read per piece: matching, copying, comparing and reckoning are learnt early."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.almanac import questions, text
from tools.almanac.questions import Step
from tools.almanac.scene import Fact, Scenes
from tools.almanac.world import RELATIONS, Entity, World, text_of

WORDS = 0.1  # weight of the loss on an answer's words, where a value's is 1: they are learnt soon, the values late
BEFORE_PASSAGES = "Context:\n"
AFTER_PASSAGES = "Answer in the same format as before.\n"


@dataclass
class Example:
    """A training text. `answers` are the character spans whose loss counts, with their weights, a later one over an
    earlier one; `skip` count nothing. `taught` are the known facts that it asks for with nothing but memory to answer
    from."""

    text: str = ""
    answers: list[tuple[int, int, float]] = field(default_factory=list)
    skip: list[tuple[int, int]] = field(default_factory=list)
    taught: list[Fact] = field(default_factory=list)

    def add(self, piece: str, weight: float | None = None) -> None:
        if weight is not None:
            self.weigh(len(self.text), len(piece), weight)
        self.text += piece

    def weigh(self, start: int, length: int, weight: float) -> None:
        self.answers.append((start, start + length, weight))


class Drills(Scenes):
    """Exercises of one skill each."""

    def _group(self, fresh: World, count: int) -> tuple[list[Entity], list[str]]:
        """Entities of one kind whose names look alike, and relations that all of them have a value for."""
        kind = self.rng.choices(("film", "person", "town"), (4, 4, 1))[0]
        first = {"film": fresh.film, "person": fresh.person, "town": fresh.town}[kind]()
        group = [first]
        while len(group) < count:
            group.append(self.lookalike(fresh, self.rng.choice(group)))
        return group, self.rng.sample(RELATIONS[kind], min(self.rng.choice((1, 2, 2, 3)), len(RELATIONS[kind])))

    def restate(self, most: int) -> Example:
        """Statements about look-alikes, then the same in another order and in other words."""
        fresh, example = World("fresh", self.rng, "f", spread=0.95, echo=0.1), Example()
        group, relations = self._group(fresh, self.rng.randint(2, most))
        facts = [(one, relation, text_of(fresh.value(one, relation))) for one in group for relation in relations]
        for weight in (None, WORDS):
            self.rng.shuffle(facts)
            for one, relation, value in facts:
                sentence, start = text.statement(self.rng, one, relation, value)
                example.add(" " if example.text else "")
                at = len(example.text)
                example.add(sentence, weight)
                if weight is not None:
                    example.weigh(at + start, len(value), 1.0)
        return example

    def quiz(self, most: int) -> Example:
        """Passages about look-alikes, then a question for each of their facts."""
        fresh, example = World("fresh", self.rng, "f", spread=0.95, echo=0.1), Example()
        group, relations = self._group(fresh, self.rng.randint(1, most))
        steps = []
        lines = []
        for one in group:
            mine = [Step(one, relation, fresh.value(one, relation)) for relation in relations]
            steps += mine
            lines.append(self._passage(fresh, one, mine))
        self.rng.shuffle(lines)
        example.add(BEFORE_PASSAGES + "".join(f"[{n}] {one}\n" for n, one in enumerate(lines, 1)) + AFTER_PASSAGES)
        self.rng.shuffle(steps)
        asked = steps[:8]
        for step in asked:
            has = {(step.subject.id, step.relation): True}
            self.answer(example, questions.single(self.rng, step), has, step is not asked[-1])
        return example

    def answer(
        self, example: Example, item: questions.Item, has: dict[Fact, bool], more: bool, weight: float = 1.0
    ) -> None:
        """Add a question and its reasoned answer; a value counts in full only where it can be had."""
        example.add(f"Question: {item.question}\nAnswer:")
        cot, said = questions.reasoning(self.rng, item, spaces=0.15)
        example.add("  " if self.rng.random() < 0.1 else " ")
        at = len(example.text)
        example.add(cot, WORDS * weight)
        for one in said:
            can = has.get((one.step.subject.id, one.step.relation), False)
            example.weigh(at + one.start, one.end - one.start, weight if can else WORDS)
        if item.close:
            example.weigh(at + len(cot) - len(item.close), len(item.close), weight)
        example.add(" So the answer is", WORDS * weight)
        example.add(f" {item.answer}", 0.5 * weight)
        example.add(".", WORDS * weight)
        if more:
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")

    def sums(self) -> Example:
        """Comparisons and ages by themselves."""
        example = Example()
        for _ in range(6):
            first = self.rng.randint(1840, 2000) if self.rng.random() < 0.8 else self.rng.randint(1100, 1830)
            gap = self.rng.choice((self.rng.randint(1, 20), self.rng.randint(10, 110)))
            example.add(" " if example.text else "")
            if self.rng.random() < 0.4:
                example.add(questions.reckon(first, first + self.rng.randint(20, 70)), 1.0)
            else:
                pair = [first, first + gap]
                self.rng.shuffle(pair)
                example.add(f"{questions.compare(*pair)}.", 1.0)
        return example
