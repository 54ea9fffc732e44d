"""Scenes for training: a question with passages that hold some of what it needs, among look-alikes that mislead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tools.almanac import names, questions, text
from tools.almanac.draws import Draws
from tools.almanac.questions import Item, Step
from tools.almanac.world import RELATIONS, Entity, Value, World, memory, text_of

Fact = tuple[str, str]  # entity id, relation


@dataclass(frozen=True)
class Stated:
    """A passage as written, and the facts that it states of its entity."""

    text: str
    entity: Entity
    facts: dict[str, str]


@cache
def _by_part(kind: str) -> dict[str, tuple[str, ...]]:
    """The fresh titles by each of their two words, the fresh towns by head and by tail."""
    index: dict[str, list[str]] = {}
    for name in names.pool(kind, "fresh"):
        for part in parts_of(kind, name):
            index.setdefault(part, []).append(name)
    return {part: tuple(found) for part, found in index.items()}


def parts_of(kind: str, name: str) -> tuple[str, str]:
    """The two parts of a title or a town by which another can be mistaken for it."""
    if kind == "title":
        _, first, second = name.split()
        return first, second
    head = max((one for one in names.syllables("heads") if name.startswith(one)), key=len)
    return head, name[len(head) :]


class Scenes(Draws):
    """Questions with passages. What decides which passage to believe is the name and the relation, never who else is
    there: mostly one needed passage is in view, and its neighbours state the same relation with another value."""

    long = 1.0  # how long passages are, from 0 (the facts alone) to 1
    crowd = 3  # passages in view, at most one more
    written: list[Stated]  # since the example was begun

    def scene(self, known_share: float) -> tuple[Item, list[str], dict[Fact, bool], list[Fact]]:
        """A question, the passages beside it, for each fact of its answer whether it can be had (from a passage or from
        memory), and the known facts that no passage states."""
        fresh = self._fresh_world()
        self.written = []
        known = self.rng.random() < known_share
        mode = self.rng.choices(("one", "all", "none"), (5, 3, 4) if known else (12, 5, 2))[0]
        target = self.rng.choice((0, 0, 1))
        there: dict[str, bool] = {}
        swapped: dict[Fact, Value] = {}

        def present(entity: Entity) -> bool:
            if entity.id not in there:
                there[entity.id] = mode == "all" or (mode == "one" and len(there) == target)
            return there[entity.id]

        def look(entity: Entity, relation: str) -> Value:
            here = present(entity)
            if entity.pool == "fresh":
                return fresh.value(entity, relation)
            if (entity.id, relation) not in swapped:
                value = memory(entity, relation) or ""
                if here and value and self.rng.random() < 0.5:
                    value = self._other(fresh, relation, value)
                swapped[entity.id, relation] = value
            return swapped[entity.id, relation]

        item = self._known_scene(look, swapped, there) if known else self.fresh_item(fresh, look)
        passages: list[str] = []
        has: dict[Fact, bool] = {}
        unread: list[Fact] = []
        subjects = list({step.subject.id: step.subject for step in item.steps}.values())
        for subject in subjects:
            needed = [step for step in item.steps if step.subject is subject]
            if present(subject):
                passages.append(self._passage(fresh, subject, needed))
            elif subject.pool == "known":
                unread += [(subject.id, step.relation) for step in needed]
            for step in needed:
                has[subject.id, step.relation] = present(subject) or subject.pool == "known"
        for subject in subjects:
            if subject.label and len(passages) < self.crowd:
                twin = Entity(subject.id + "t", "film", subject.name, "fresh", label="twin")
                passages.append(self._passage(fresh, twin, self._same_relations(fresh, twin, item, subject)))
        wanted = self.rng.choices((self.crowd, self.crowd + 1, 1, 2), (8, 1, 1, 2))[0]
        seen = [one for one in subjects if present(one)] or subjects
        while len(passages) < wanted:
            about = self.rng.choice(seen if self.rng.random() < 0.7 else subjects)
            passages.append(self._distractor(fresh, about, item))
        self.rng.shuffle(passages)
        return item, passages, has, unread

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

    def _passage(self, fresh: World, entity: Entity, needed: list[Step]) -> str:
        facts = self._facts(fresh, entity, self.rng.choice((0.0, 0.2, 0.6)) if self.long else 0.0)
        if entity.label == "twin":
            facts["year"] = fresh.value(entity, "year")
        elif entity.label and entity.kind == "film":
            facts["year"] = entity.label.split()[0]
        facts |= {step.relation: step.value for step in needed}
        if entity.kind == "person":
            if "job" not in entity.facts:
                entity.facts["job"] = fresh.value(Entity("", "person", "", "fresh"), "job")
            facts["job"] = entity.facts["job"]
        return self.write(entity, {one: text_of(value) for one, value in facts.items()})

    def write(self, entity: Entity, facts: dict[str, str]) -> str:
        order = list(facts)
        self.rng.shuffle(order)
        fill = self.rng.choice((0.0, 0.0, 0.1, 0.4, 0.9)) * self.long
        said = text.passage(self.rng, entity, {one: facts[one] for one in order}, fill=fill)
        self.written.append(Stated(said, entity, facts))
        return said

    def _same_relations(self, fresh: World, other: Entity, item: Item, subject: Entity) -> list[Step]:
        """What the answer needs of a subject, of another entity of its kind."""
        found = []
        for relation in dict.fromkeys(step.relation for step in item.steps if step.subject is subject):
            value = memory(other, relation) if other.pool == "known" else fresh.value(other, relation)
            if value:
                found.append(Step(other, relation, value))
        return found

    def _distractor(self, fresh: World, subject: Entity, item: Item) -> str:
        draw = self.rng.random()
        if draw < 0.06:
            return text.thing_passage(self.rng, "fresh")[1]
        if draw < 0.16:  # the right entity, but not the fact
            if draw < 0.11:
                return text.second_passage(self.rng, subject, "fresh")
            needed = {step.relation for step in item.steps if step.subject is subject}
            facts = {one: value for one, value in self._facts(fresh, subject, 0.5).items() if one not in needed}
            if subject.label:
                facts["year"] = subject.label.split()[0]
            if "job" in subject.facts:
                facts["job"] = subject.facts["job"]
            if subject.kind != "person" or "job" in facts:
                return self.write(subject, {one: text_of(value) for one, value in facts.items()})
        if draw < 0.26 and subject.pool == "known":
            other = self._known_pick(subject.kind)
            if other is not subject:
                return self._passage(fresh, other, self._same_relations(fresh, other, item, subject))
        other = self.lookalike(fresh, subject) if draw < 0.9 else fresh.film()
        same = self._same_relations(fresh, other, item, subject) if other.kind == subject.kind else []
        return self._passage(fresh, other, same if self.rng.random() < 0.85 else [])

    def lookalike(self, fresh: World, subject: Entity) -> Entity:
        """A new entity of the same kind whose name shares a part with the subject's."""
        if subject.kind == "person":
            made = fresh.director() if self.rng.random() < 0.5 else fresh.person(subject.female)
            (first, last), (own_first, own_last) = made.name.split(), subject.name.split()
            if self.rng.random() < 0.5:
                name, made.female = f"{own_first} {last}", own_first in names.FEMALE
            else:
                name = f"{first} {own_last}"
        else:
            kind = "title" if subject.kind == "film" else "town"
            made = fresh.film() if subject.kind == "film" else fresh.town()
            part = self.rng.choice(parts_of(kind, subject.name))
            name = self.rng.choice(_by_part(kind).get(part, (made.name,)))
        if name != subject.name and name not in fresh._taken:
            fresh._taken.add(name)
            made.name = name
        return made
