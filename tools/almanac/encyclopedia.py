"""The passages of Almanac: one or two about every entity, namesakes, and passages about things no question asks for."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tools.almanac import names, text
from tools.almanac.world import Almanac, Entity, text_of

WORDS = 100
NAMESAKES = {"known": 6, "unknown": 30}
FURTHER = {"film": 0.5, "person": 0.25, "town": 0.6}  # share of the entities that have a second passage
THINGS = 300


@dataclass(frozen=True)
class Entry:
    """A passage as it stands in the corpus; `entity` is the id of the entity whose facts it states, or empty."""

    id: str
    text: str
    title: str
    entity: str = ""

    @property
    def sentences(self) -> list[str]:
        return re.split(r"(?<=\.) ", self.text)


class Encyclopedia:
    """All passages, sorted by title, ids from 1. `main` maps an entity's id to the passage that states its facts."""

    def __init__(self, almanac: Almanac) -> None:
        rng = random.Random(f"almanac passages {almanac.seed}")
        self.namesakes = _namesakes(almanac, rng)
        rows: list[tuple[str, str, str]] = []  # title, text, entity
        for one in [*almanac.entities, *self.namesakes]:
            facts = [(name, text_of(value)) for name, value in one.facts.items()]
            rng.shuffle(facts)
            rows.append(
                (one.title, text.passage(rng, one, dict(facts), rng.uniform(0.5, 1.0), WORDS, "unknown"), one.id)
            )
        for one in almanac.entities:
            if rng.random() < FURTHER[one.kind]:
                rows.append((one.title, text.second_passage(rng, one, "unknown"), ""))
        for _ in range(THINGS):
            title, written = text.thing_passage(rng, "unknown")
            rows.append((title, written, ""))
        rows = sorted(dict.fromkeys(rows))
        self.entries = [
            Entry(str(number), written, title, entity) for number, (title, written, entity) in enumerate(rows, 1)
        ]
        self.main = {entry.entity: entry for entry in self.entries if entry.entity}
        self._by_title: dict[str, list[Entry]] = {}
        for entry in self.entries:
            for word in entry.title.split():
                self._by_title.setdefault(word, []).append(entry)

    def distractors(self, rng: random.Random, titles: list[str], count: int) -> list[Entry]:
        """Passages with other titles, those that share a word with one of `titles` first."""
        near = [
            one for title in titles for word in title.split() if word != "The" for one in self._by_title.get(word, [])
        ]
        near = [one for one in dict.fromkeys(near) if one.title not in titles]
        chosen = rng.sample(near, min(len(near), count - 1))
        while len(chosen) < count:
            one = rng.choice(self.entries)
            if one.title not in titles and one not in chosen:
                chosen.append(one)
        return chosen


def _namesakes(almanac: Almanac, rng: random.Random) -> list[Entity]:
    """People of other trades who share a director's name."""
    made = []
    for world in (almanac.known, almanac.unknown):
        for number, one in enumerate(rng.sample(world.directors, min(NAMESAKES[world.pool], len(world.directors)))):
            twin = Entity(f"{world.prefix}n{number}", "person", one.name, "unknown", one.female)
            twin.label = rng.choice(names.JOBS)
            born = rng.randint(1850, 1950)
            twin.facts = {
                "job": twin.label,
                "born": str(born),
                "birthplace": rng.choice(almanac.unknown.towns),
                "died": str(born + rng.randint(40, 80)),
                "deathplace": rng.choice(almanac.unknown.towns),
            }
            made.append(twin)
    return made
