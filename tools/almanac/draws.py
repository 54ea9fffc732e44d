"""Questions drawn for training: about the known half as training says, and about entities that did not exist before."""

from __future__ import annotations

import random

from tools.almanac import questions
from tools.almanac.questions import Item
from tools.almanac.world import Almanac, AlmanacError, Entity, Value, World, memory, text_of


class Draws:
    """Questions of the training split. Names of the world's unknown half never occur: they are never looked at."""

    labelled = 0.06  # share of new films with a year in brackets after the title

    def __init__(self, almanac: Almanac, seed: int = 0) -> None:
        self.world, self.seed = almanac.known, seed
        self._films = [one for one in self.world.films if one.weight > 0]
        self._people = [one for one in self.world.directors if one.weight > 0]
        self._towns = [one for one in self.world.towns if one.weight > 0]
        self.rng = random.Random()

    def _kind(self) -> str:
        draw = self.rng.random()
        if draw < 0.20:
            return self.rng.choice(questions.SINGLE)
        if draw < 0.58:
            return self.rng.choice(questions.LONG_CHAINS)
        if draw < 0.75:
            return self.rng.choice(questions.COMPARE)
        if draw < 0.93:
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

    def fresh_item(self, world: World, look: questions.Look | None = None) -> Item:
        """A question about entities that did not exist before; `look` gives their values, by default the world."""

        def pick(kind: str) -> Entity:
            made = {"film": world.film, "person": world.director, "town": world.town}[kind]()
            if kind == "film" and self.rng.random() < self.labelled:
                made.label = f"{text_of(world.value(made, 'year'))} film"
            return made

        while True:
            item = questions.make(self._kind(), self.rng, pick, look or world.value)
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
