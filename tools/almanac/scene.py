"""Scenes for training: a question with passages that hold all, some or none of what it needs."""

from __future__ import annotations

from functools import cache

from tools.almanac import names, questions, text
from tools.almanac.draws import Draws
from tools.almanac.questions import Item, Step
from tools.almanac.world import RELATIONS, Entity, Value, World, memory, text_of

Fact = tuple[str, str]  # entity id, relation


@cache
def _by_word(kind: str) -> dict[str, tuple[str, ...]]:
    index: dict[str, list[str]] = {}
    for name in names.pool(kind, "fresh"):
        for word in name.split()[1:]:
            index.setdefault(word, []).append(name)
    return {word: tuple(found) for word, found in index.items()}


class Scenes(Draws):
    """Questions with passages, among them some about other things and some that contradict what training taught."""

    _brief = False  # few and short passages

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
                if present(entity) and value and self.rng.random() < 0.5:
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
        while len(passages) < (1 if self._brief else 3):
            passages.append(self._distractor(fresh, self.rng.choice(subjects), item, further))
        self.rng.shuffle(passages)
        return item, passages, further, unread

    def _known_scene(self, look: questions.Look, swapped: dict[Fact, Value], there: dict[str, bool]) -> Item:
        for _ in range(400):
            swapped.clear()
            there.clear()
            item = questions.make(self._kind(), self.rng, self._known_pick, look)
            if item is None or any(step.value == "" for step in item.steps):
                continue
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
        fill = 0.0 if self._brief else self.rng.choice((0.0, 0.0, 0.1, 0.3, 0.7))
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
