"""Short exercises with many facts to read per piece: matching, copying, comparing and reckoning are learnt early."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.almanac import questions, text
from tools.almanac.questions import Step
from tools.almanac.scene import Fact, Scenes, Stated
from tools.almanac.world import RELATIONS, Entity, World, text_of

WORDS = 0.1  # weight of the loss on an answer's words, where a value's is 1: they are learnt soon, the values late
BEFORE_PASSAGES = "Context:\n"
AFTER_PASSAGES = "Answer in the same format as before.\n"


@dataclass
class Example:
    """A training text. `answers` are the character spans whose loss counts, with their weights, a later one over an
    earlier one; `skip` count nothing. `taught` are the known facts that it asks for with nothing but memory to answer
    from. `stated` says where a text to read states a fact. `subjects` and `sources` pair the character at which a value
    begins with one that it belongs to: the last of its subject's name, and the first of the value in a text to read.
    `topics` say for a span of a written sentence which span names what the sentence is about; `values` are the spans of
    the values in written sentences."""

    text: str = ""
    answers: list[tuple[int, int, float]] = field(default_factory=list)
    skip: list[tuple[int, int]] = field(default_factory=list)
    taught: list[Fact] = field(default_factory=list)
    stated: dict[Fact, int] = field(default_factory=dict)
    subjects: list[tuple[int, int]] = field(default_factory=list)
    sources: list[tuple[int, int]] = field(default_factory=list)
    topics: list[tuple[int, int, int, int]] = field(default_factory=list)
    values: list[tuple[int, int]] = field(default_factory=list)

    def add(self, piece: str, weight: float | None = None) -> None:
        if weight is not None:
            self.weigh(len(self.text), len(piece), weight)
        self.text += piece

    def weigh(self, start: int, length: int, weight: float) -> None:
        self.answers.append((start, start + length, weight))

    def state(self, entity: Entity, relation: str, at: int, length: int, since: int) -> None:
        """A value that begins at `at` and whose sentence, with the subject's name, begins at `since`."""
        self.values.append((at, at + length))
        self._belongs(entity, at, since)
        self._topic(entity, at, since)
        if (source := self.stated.get((entity.id, relation))) is not None:
            self.sources.append((at, source))

    def _belongs(self, entity: Entity, at: int, since: int) -> None:
        named = self.text.find(entity.name, since, at)
        if named >= 0:
            self.subjects.append((at, named + len(entity.name) - 1))

    def _topic(self, entity: Entity, at: int, since: int) -> None:
        """From its name on, a sentence is about that name; before it, about the place that named it last."""
        named = self.text.find(entity.name, since, at)
        if named < 0:
            return
        name = entity.title if self.text.startswith(entity.title, named) else entity.name
        begins = max(self.text.rfind(mark, 0, named) for mark in (". ", ":", "? "))
        before = self.text.rfind(name, 0, max(begins, 0))
        if before >= 0:
            self.topics.append((begins, named, before, before + len(name)))
        ends = self.text.find(".", at)
        self.topics.append((named + len(name), ends if ends >= 0 else len(self.text), named, named + len(name)))

    def find(self, passages: Iterable[Stated], since: int) -> None:
        """Note where the passages, added since, state their facts."""
        for passage in passages:
            begins = self.text.find(passage.text, since)
            for relation, value in passage.facts.items() if begins >= 0 else ():
                at = self.text.find(value, begins, begins + len(passage.text))
                if at >= 0:
                    self._belongs(passage.entity, at, begins)
                    self.stated[passage.entity.id, relation] = at


class Drills(Scenes):
    """Exercises of one skill each."""

    labels_names = False  # whether a film that was chosen may have a label

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
                example.state(one, relation, at + start, len(value), at)
                if weight is None:
                    example.stated[one.id, relation] = at + start
                else:
                    example.weigh(at + start, len(value), 1.0)
        return example

    def quiz(self, most: int) -> Example:
        """Passages about look-alikes, then a question for each of their facts."""
        fresh, example = World("fresh", self.rng, "f", spread=0.95, echo=0.1), Example()
        self.written = []
        group, relations = self._group(fresh, self.rng.randint(1, most))
        steps = []
        lines = []
        for one in group:
            mine = [Step(one, relation, fresh.value(one, relation)) for relation in relations]
            steps += mine
            lines.append(self._passage(fresh, one, mine))
        self.rng.shuffle(lines)
        example.add(BEFORE_PASSAGES + "".join(f"[{n}] {one}\n" for n, one in enumerate(lines, 1)) + AFTER_PASSAGES)
        example.find(self.written, 0)
        self.rng.shuffle(steps)
        asked = steps[:8]
        for step in asked:
            has = {(step.subject.id, step.relation): True}
            self.answer(example, questions.single(self.rng, step), has, step is not asked[-1])
        return example

    def answer(
        self,
        example: Example,
        item: questions.Item,
        has: dict[Fact, bool],
        more: bool,
        weight: float = 1.0,
        layout: str = "Question: {}\nAnswer:",
    ) -> None:
        """Add a question and its reasoned answer; a value counts in full only where it can be had."""
        example.add(layout.format(item.question))
        cot, said = questions.reasoning(self.rng, item, spaces=0.15)
        example.add("  " if self.rng.random() < 0.1 else " ")
        at = len(example.text)
        example.add(cot, WORDS * weight)
        for one in said:
            can = has.get((one.step.subject.id, one.step.relation), False)
            example.weigh(at + one.start, one.end - one.start, weight if can else WORDS)
            sentence = max(at, example.text.rfind(one.step.subject.name, at, at + one.start))
            example.state(one.step.subject, one.step.relation, at + one.start, one.end - one.start, sentence)
        if item.close:
            example.weigh(at + len(cot) - len(item.close), len(item.close), weight)
        example.add(" So the answer is", WORDS * weight)
        example.add(f" {item.answer}", 0.5 * weight)
        example.add(".", WORDS * weight)
        if more:
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")

    def digits(self) -> Example:
        """What an age is reckoned from: single digits."""
        example, draw = Example(), self.rng.randrange
        for _ in range(16):
            said = questions.less(draw(10), draw(10))
            if self.rng.random() < 0.5:
                said = questions.less_one(draw(10), draw(10), self.rng.random() < 0.5)
            given, found = said.split(" is ")
            example.add(f"{' ' if example.text else ''}{given}")
            example.add(f" is {found},", 1.0)
        return example

    def sums(self) -> Example:
        """Comparisons and ages by themselves."""
        example = Example()
        for _ in range(6):
            first = self.rng.randint(1840, 2000) if self.rng.random() < 0.8 else self.rng.randint(1100, 1830)
            gap = self.rng.choice((self.rng.randint(1, 20), self.rng.randint(10, 110)))
            if self.rng.random() < 0.5:
                said = questions.reckon(first, first + self.rng.randint(20, 70))
            else:
                pair = [first, first + gap]
                self.rng.shuffle(pair)
                said = f"{questions.compare(*pair)}."
            given, worked = said.split(", ", 1)
            example.add(f"{' ' if example.text else ''}{given},")
            example.add(f" {worked}", 1.0)
        return example

    def places(self) -> Example:
        """One place or two, over and over: alone, and after the sentences that name them."""
        fresh, example = World("fresh", self.rng, "f", spread=0.95, echo=0.1), Example()
        for _ in range(20):
            word, town = self.rng.choice(("town", "country")), fresh.town()
            pair = [town, town if self.rng.random() < 0.5 else self.lookalike(fresh, town)]
            names = [one.name if word == "town" else text_of(fresh.value(one, "country")) for one in pair]
            said = questions.alike(*names, word)
            example.add(" " if example.text else "")
            if self.rng.random() < 0.25:
                for person, place in zip((fresh.person(), fresh.person()), names, strict=True):
                    example.add(f"The birthplace of {person.name} is {place}. ")
            at = len(example.text) + said.index(" are ") + len(" are ")
            example.add(said[: said.index(" are ") + len(" are")])
            example.add(said[said.index(" are ") + len(" are") :], 1.0)
            example.weigh(at, 3, 3.0)  # "the" or "two"
        return example

    def conclusions(self) -> Example:
        """What answers turn on: one place or two, years close to each other, the name that was chosen."""
        fresh, example = World("fresh", self.rng, "f", spread=0.95, echo=0.1), Example()
        for _ in range(8):
            sort = self.rng.choices(("place", "years", "name"), (3, 3, 2))[0]
            if sort == "place":
                word, town = self.rng.choice(("town", "country")), fresh.town()
                first = town.name if word == "town" else text_of(fresh.value(town, "country"))
                other = self.lookalike(fresh, town)
                second = other.name if word == "town" else text_of(fresh.value(other, "country"))
                said = questions.alike(first, first if self.rng.random() < 0.5 else second, word)
                given, found = f"{said.split(' are ')[0]} are", said.split(" are ")[1]
            else:
                first_year = self.rng.randint(1870, 2000)
                pair = [first_year, first_year + self.rng.choice((self.rng.randint(1, 9), self.rng.randint(1, 60)))]
                self.rng.shuffle(pair)
                given, found = questions.compare(*pair).rsplit(" ", 1)
                found += "."
                if sort == "name":
                    named = self.rng.choice((fresh.film, fresh.person))()
                    if self.labels_names and named.kind == "film" and self.rng.random() < 0.4:
                        named.label = f"{self.rng.randint(1890, 2010)} film"
                    title = named.title
                    chosen = self.rng.choice(("earlier", "later"))
                    given, found = f"{given} {found[:-1]}, so the {chosen} is {title}. So the answer is", f"{title}."
            example.add(f"{' ' if example.text else ''}{given}")
            example.add(f" {found}", 1.0)
        return example
