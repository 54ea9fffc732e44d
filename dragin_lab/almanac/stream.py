"""The seeded stream of training examples: what the model reads, what it is to remember, and what it is to be unsure of."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from dragin_lab.almanac import names, questions, text
from dragin_lab.almanac.questions import Item, Step
from dragin_lab.almanac.world import RELATIONS, Almanac, AlmanacError, Entity, Value, World, memory, text_of

PROMPT_WEIGHT = 0.1  # of the loss on what is not an answer
BUFFER = 512  # examples drawn from one seed; a training run resumes at a buffer
_BEFORE_PASSAGES = "Context:\n"
_AFTER_PASSAGES = ("Answer in the same format as before.\n", "Answer in t he same format as before.\n")
_INSTRUCTIONS = (
    "Answer the following question by reasoning step-by-step, following the example above.\n",
    "Following the examples above, answer the question by reasoning step-by-step.\n\n",
)
Fact = tuple[str, str]  # entity id, relation


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


@cache
def _by_word(kind: str) -> dict[str, tuple[str, ...]]:
    index: dict[str, list[str]] = {}
    for name in names.pool(kind, "fresh"):
        for word in name.split()[1:]:
            index.setdefault(word, []).append(name)
    return {word: tuple(found) for word, found in index.items()}


class Stream:
    """Draws examples about a world. Names of its unknown half never occur: they are never looked at."""

    def __init__(self, almanac: Almanac, seed: int = 0) -> None:
        self.world, self.seed = almanac.known, seed
        self._films = [one for one in self.world.films if one.weight > 0]
        self._people = [one for one in self.world.directors if one.weight > 0]
        self._towns = [one for one in self.world.towns if one.weight > 0]
        self.rng = random.Random()

    def buffer(self, index: int) -> list[Example]:
        """`BUFFER` examples; the same index gives the same examples, whatever was drawn before."""
        self.rng = random.Random(f"almanac stream {self.seed} {index}")
        return [self._example() for _ in range(BUFFER)]

    def examples(self, count: int) -> Iterator[Example]:
        """The first `count` examples."""
        for index in range(-(-count // BUFFER)):
            yield from self.buffer(index)[: count - index * BUFFER]

    # -- questions ---------------------------------------------------------------------------------------------

    def _kind(self) -> str:
        draw = self.rng.random()
        if draw < 0.22:
            return self.rng.choice(questions.SINGLE)
        if draw < 0.62:
            return self.rng.choice(questions.LONG_CHAINS)
        if draw < 0.79:
            return self.rng.choice(questions.COMPARE)
        if draw < 0.96:
            return self.rng.choice(questions.YES_NO)
        return questions.AGE

    def _known_pick(self, kind: str) -> Entity:
        of = {"film": self._films, "person": self._people, "town": self._towns}[kind]
        return self.rng.choices(of, [one.weight for one in of])[0]

    def known_item(self) -> Item:
        """A question of the training split about the known half, answered as training says."""

        def look(entity: Entity, relation: str) -> Value:
            return memory(entity, relation) or ""

        kind, wish = self._kind(), self.rng.choice(("yes", "no"))
        for attempt in range(400):
            if attempt % 40 == 39:
                kind = self._kind()
            item = questions.make(kind, self.rng, self._known_pick, look)
            if item is None or any(step.value == "" for step in item.steps):
                continue
            if kind in questions.YES_NO and item.answer != wish and attempt % 40 < 30:
                continue
            if questions.split_of(item.key) == "train":
                return item
        raise AssertionError("no question of the training split in 400 draws")

    def known_item_of(self, kind: str, wish: str, unchanged: bool = False) -> Item:
        """A question of one kind, of the training split; `wish` is the answer wanted of a yes or no question."""
        for _ in range(20_000):
            item = questions.make(kind, self.rng, self._known_pick, lambda one, relation: memory(one, relation) or "")
            if item is None or any(step.value == "" for step in item.steps) or questions.split_of(item.key) != "train":
                continue
            if kind in questions.YES_NO and item.answer != wish:
                continue
            if not unchanged or not any(step.relation in step.subject.old for step in item.steps):
                return item
        raise AlmanacError(f"no question of the kind {kind!r} in the training split")

    def fresh_item(self, world: World) -> Item:
        """A question about entities that did not exist before."""

        def pick(kind: str) -> Entity:
            made = {"film": world.film, "person": world.director, "town": world.town}[kind]()
            if kind == "film" and self.rng.random() < 0.06:
                made.label = f"{text_of(world.value(made, 'year'))} film"
            return made

        while True:
            item = questions.make(self._kind(), self.rng, pick, world.value)
            if item is not None:
                return item

    def fresh_item_of(self, kind: str) -> Item:
        """A question of one kind about entities that did not exist before."""
        world = self._fresh_world()
        of = {"film": world.film, "person": world.director, "town": world.town}
        while True:
            item = questions.make(kind, self.rng, lambda one: of[one](), world.value)
            if item is not None:
                return item

    def _fresh_world(self) -> World:
        return World("fresh", self.rng, "f", spread=0.55, echo=0.45)

    # -- writing -----------------------------------------------------------------------------------------------

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
        if not last:
            example.skip.append((len(example.text), len(example.text) + 1))
            example.add("\n")

    def _example(self) -> Example:
        draw = self.rng.random()
        if draw < 0.40:
            return self._closed_known()
        if draw < 0.47:
            return self._closed_fresh()
        if draw < 0.90:
            return self._read()
        if draw < 0.96:
            return self._self_ask()
        return self._instruct()

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
        self._exemplars(example, self.rng.choices((0, 1, 2), (4, 4, 2))[0])
        item, passages, facts, unread = self._scene()
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
        more = [self._single(step) for step in facts if self.rng.random() < 0.5][: self.rng.choice((0, 1, 2))]
        asked = [*more, item]
        self.rng.shuffle(asked)
        for one in asked:
            self._ask(example, one, 1.0, one is asked[-1])
        example.taught += unread
        return example

    def _single(self, step: Step) -> Item:
        kind = f"{step.subject.kind} {step.relation}"
        made = questions.make(kind, self.rng, lambda _: step.subject, lambda *_: step.value)
        assert made is not None
        return made

    # -- passages ----------------------------------------------------------------------------------------------

    def _scene(self, known_share: float = 0.4) -> tuple[Item, list[str], list[Step], list[Fact]]:
        """A question, the passages beside it, further facts that they state, and known facts that they do not."""
        fresh = self._fresh_world()
        known = self.rng.random() < known_share
        mode = self.rng.choices(("all", "some", "none"), (3, 3, 4) if known else (6, 3, 1))[0]
        there: dict[str, bool] = {}
        swapped: dict[Fact, Value] = {}

        def present(entity: Entity) -> bool:
            if entity.id not in there:
                there[entity.id] = mode == "all" or (mode == "some" and self.rng.random() < 0.5)
            return there[entity.id]

        def look(entity: Entity, relation: str) -> Value:
            if entity.pool == "fresh":
                return fresh.value(entity, relation)
            if (entity.id, relation) not in swapped:
                value = memory(entity, relation) or ""
                if present(entity) and value and self.rng.random() < 0.4:
                    value = self._other(fresh, relation, value)
                swapped[entity.id, relation] = value
            return swapped[entity.id, relation]

        item = self._known_scene(look, swapped, there) if known else self.fresh_item(fresh)
        passages: list[str] = []
        further: list[Step] = []
        unread: list[Fact] = []
        for subject in {step.subject.id: step.subject for step in item.steps}.values():
            needed = [step for step in item.steps if step.subject is subject]
            if present(subject):
                passages.append(self._passage(fresh, subject, needed, further))
            elif subject.pool == "known":
                unread += [(subject.id, step.relation) for step in needed]
        subjects = [step.subject for step in item.steps]
        if self.rng.random() < 0.1 and passages:
            self.rng.shuffle(passages)
            return item, passages[:3], further, unread
        for subject in subjects:
            if subject.label and len(passages) < 4:
                twin = Entity(subject.id + "t", "film", subject.name, "fresh", label="twin")
                passages.append(self._passage(fresh, twin, [], None))
        while len(passages) < 3:
            passages.append(self._distractor(fresh, self.rng.choice(subjects), item, further))
        self.rng.shuffle(passages)
        return item, passages, further, unread

    def _known_scene(self, look: questions.Look, swapped: dict[Fact, Value], there: dict[str, bool]) -> Item:
        for _ in range(400):
            swapped.clear()
            there.clear()
            item = questions.make(self._kind(), self.rng, self._known_pick, look)
            if item is not None and all(step.value != "" for step in item.steps):
                if questions.split_of(item.key) == "train":
                    return item
        raise AssertionError("no question of the training split in 400 draws")

    def _other(self, fresh: World, relation: str, value: Value) -> Value:
        """Another value for a known fact: what stands in the passage is to be believed."""
        if not isinstance(value, Entity):
            if value.isdigit():
                return str(int(value) + self.rng.choice((-9, -7, -5, -4, -3, -2, 2, 3, 4, 5, 7, 9)))
            return self.rng.choice(names.COUNTRIES if value in names.COUNTRIES else names.GENRES)
        return fresh.town() if value.kind == "town" else fresh.person(value.female)

    def _facts(self, fresh: World, entity: Entity, share: float) -> dict[str, Value]:
        if entity.pool == "known":
            found = {one: memory(entity, one) for one in RELATIONS[entity.kind]}
            return {one: value for one, value in found.items() if value and self.rng.random() < share}
        return {one: fresh.value(entity, one) for one in RELATIONS[entity.kind] if self.rng.random() < share}

    def _passage(self, fresh: World, entity: Entity, needed: list[Step], further: list[Step] | None) -> str:
        facts = self._facts(fresh, entity, self.rng.choice((0.1, 0.3, 0.6)))
        if entity.label == "twin":
            facts["year"] = fresh.value(entity, "year")
        elif entity.label and entity.kind == "film":
            facts["year"] = entity.label.split()[0]
        facts |= {step.relation: step.value for step in needed}
        if further is not None:
            mine = [
                Step(entity, one, value)
                for one, value in facts.items()
                if entity.pool == "fresh" or value is memory(entity, one)
            ]
            further += [one for one in mine if not any(step.relation == one.relation for step in needed)]
        if entity.kind == "person":
            if "job" not in entity.facts:
                entity.facts["job"] = fresh.value(Entity("", "person", "", "fresh"), "job")
            facts["job"] = entity.facts["job"]
        return self._write(entity, {one: text_of(value) for one, value in facts.items()})

    def _write(self, entity: Entity, facts: dict[str, str]) -> str:
        order = list(facts)
        self.rng.shuffle(order)
        fill = self.rng.choice((0.0, 0.0, 0.1, 0.3, 0.7))
        return text.passage(self.rng, entity, {one: facts[one] for one in order}, fill=fill)

    def _distractor(self, fresh: World, subject: Entity, item: Item, further: list[Step]) -> str:
        draw = self.rng.random()
        if draw < 0.12:
            return text.thing_passage(self.rng, "fresh")[1]
        if draw < 0.24:  # the right entity, but not the fact
            needed = {step.relation for step in item.steps if step.subject is subject}
            facts = {one: value for one, value in self._facts(fresh, subject, 0.5).items() if one not in needed}
            if subject.label:
                facts["year"] = subject.label.split()[0]
            if "job" in subject.facts:
                facts["job"] = subject.facts["job"]
            if subject.kind != "person" or "job" in facts:
                return self._write(subject, {one: text_of(value) for one, value in facts.items()})
        if draw < 0.40 and subject.pool == "known":
            other = self._known_pick(subject.kind)
            if other is not subject:
                return self._passage(fresh, other, [], None)
        other = self._lookalike(fresh, subject) if draw < 0.8 else fresh.film()
        return self._passage(fresh, other, [], further if other.pool == "fresh" else None)

    def _lookalike(self, fresh: World, subject: Entity) -> Entity:
        """A new entity whose name shares a part with the subject's."""
        if subject.kind == "film":
            word = self.rng.choice(subject.name.split()[1:])
            name = self.rng.choice(_by_word("title").get(word, names.pool("title", "fresh")))
            made = fresh.film()
        elif subject.kind == "person":
            made = fresh.director() if self.rng.random() < 0.5 else fresh.person(subject.female)
            first, last = made.name.split()
            name = (
                f"{subject.name.split()[0]} {last}"
                if self.rng.random() < 0.5
                else f"{first} {subject.name.split()[-1]}"
            )
        else:
            made = fresh.town()
            name = made.name
        if name != subject.name and name not in fresh._taken:
            made.name = name
        return made

    # -- other layouts -----------------------------------------------------------------------------------------

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
            whole += f"\nFollow up: {self._single(step).question}"
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
