"""The world of Almanac: people, films and towns whose attributes are drawn once and kept, so that it is consistent.

A `World` draws lazily: asking for a value that is not there draws it, and whatever must exist with it. The corpus asks
for everything it prints; a training example asks only for what its question needs, from a world of its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from dragin_lab.almanac import AlmanacError
from tools.almanac import names


@dataclass(eq=False)
class Entity:
    """A film, person or town. `facts` maps a relation to an `Entity` or a string; years are strings of four digits."""

    id: str
    kind: str  # film, person, town
    name: str
    pool: str
    female: bool = False
    label: str = ""  # what tells it from others of its name, in brackets behind it
    facts: dict[str, Entity | str] = field(default_factory=dict)
    old: dict[str, Entity | str] = field(default_factory=dict)  # changed facts: what training says
    weight: float = 0.0  # how often training asks about it, relative to others of its kind; 0: never

    @property
    def title(self) -> str:
        return f"{self.name} ({self.label})" if self.label else self.name

    def __repr__(self) -> str:
        return f"Entity({self.id!r}, {self.title!r})"


Value = Entity | str


def text_of(value: Value) -> str:
    """How a value is written in running text."""
    return value.title if isinstance(value, Entity) else value


@dataclass(frozen=True)
class Sizes:
    """How much of a world there is; `seldom` of the films belong to the tail of the Zipf law of exposures."""

    films: int
    directors: int
    towns: int
    seldom: int = 0
    remakes: int = 0

    def __post_init__(self) -> None:
        for label in ("films", "directors", "towns"):
            if getattr(self, label) < 2:
                raise AlmanacError(f"a world needs at least 2 {label}, got {getattr(self, label)}")
        if not 0 <= self.seldom < self.films or not 0 <= self.remakes <= self.films:
            raise AlmanacError(f"seldom ({self.seldom}) and remakes ({self.remakes}) must fit into {self.films} films")


class World:
    """Entities of one pool of names. `spread` is the chance that a town or director is a new one instead of one at
    hand, `echo` the chance that a country is the one drawn last."""

    def __init__(self, pool: str, rng: random.Random, prefix: str, spread: float = 0.75, echo: float = 0.0) -> None:
        if pool not in names.POOLS:
            raise AlmanacError(f"there is no pool {pool!r}; pools are {', '.join(names.POOLS)}")
        self.pool, self.rng, self.prefix, self.spread, self.echo = pool, rng, prefix, spread, echo
        self.entities: list[Entity] = []
        self.films: list[Entity] = []
        self.directors: list[Entity] = []
        self.towns: list[Entity] = []
        self._taken: set[str] = set()
        self._countries: list[str] = []

    def _add(self, kind: str, name: str, female: bool = False) -> Entity:
        made = Entity(f"{self.prefix}{kind[0]}{len(self.entities)}", kind, name, self.pool, female)
        self.entities.append(made)
        self._taken.add(name)
        return made

    def _free(self, kind: str, make: random.Random) -> str:
        for _ in range(200):
            name = make.choice(names.pool(kind, self.pool))
            if name not in self._taken:
                return name
        raise AlmanacError(f"the pool {self.pool!r} has no free {kind} left; ask for a smaller world")

    def film(self) -> Entity:
        made = self._add("film", self._free("title", self.rng))
        self.films.append(made)
        return made

    def town(self) -> Entity:
        made = self._add("town", self._free("town", self.rng))
        self.towns.append(made)
        return made

    def person(self, female: bool | None = None, surname: str = "") -> Entity:
        if female is None:
            female = self.rng.random() < 0.5
        for _ in range(200):
            family = surname or self.rng.choice(names.pool("surname", self.pool))
            name = f"{names.first_name(self.rng, female)} {family}"
            if name not in self._taken:
                return self._add("person", name, female)
        raise AlmanacError(f"the pool {self.pool!r} has no free name left; ask for a smaller world")

    def director(self) -> Entity:
        made = self.person()
        made.facts["job"] = "film director"
        self.directors.append(made)
        return made

    def some_town(self) -> Entity:
        return self.town() if not self.towns or self.rng.random() < self.spread else self.rng.choice(self.towns)

    def some_director(self) -> Entity:
        return (
            self.director()
            if not self.directors or self.rng.random() < self.spread
            else self.rng.choice(self.directors)
        )

    def value(self, entity: Entity, relation: str) -> Value:
        """The value of a relation, drawn if it is not there yet."""
        if relation not in entity.facts:
            entity.facts[relation] = getattr(self, f"_{relation}")(entity)
        return entity.facts[relation]

    def year(self, entity: Entity, relation: str) -> int:
        return int(text_of(self.value(entity, relation)))

    def _director(self, film: Entity) -> Value:
        return self.some_director()

    def _year(self, film: Entity) -> Value:
        director = self.value(film, "director")
        assert isinstance(director, Entity)
        born = self.year(director, "born")
        return str(self.rng.randint(born + 24, min(born + 62, self.year(director, "died"))))

    def _country(self, entity: Entity) -> Value:
        if self._countries and self.rng.random() < self.echo:
            return self._countries[-1]
        self._countries.append(self.rng.choice(names.COUNTRIES))
        return self._countries[-1]

    def _genre(self, film: Entity) -> Value:
        return self.rng.choice(names.GENRES)

    def _born(self, person: Entity) -> Value:
        return str(self.rng.randint(1870, 1945))

    def _died(self, person: Entity) -> Value:
        return str(self.year(person, "born") + self.rng.randint(50, 80))

    def _birthplace(self, person: Entity) -> Value:
        return self.some_town()

    def _deathplace(self, person: Entity) -> Value:
        return self.some_town()

    def _job(self, person: Entity) -> Value:
        return self.rng.choice(names.JOBS)

    def _parent(self, person: Entity, female: bool) -> Entity:
        parent = self.person(female, "" if female else person.name.split()[-1])
        parent.facts["born"] = str(self.year(person, "born") - self.rng.randint(20, 38))
        return parent

    def _father(self, person: Entity) -> Value:
        return self._parent(person, False)

    def _mother(self, person: Entity) -> Value:
        return self._parent(person, True)

    def _spouse(self, person: Entity) -> Value:
        partner = self.person(not person.female)
        partner.facts["born"] = str(self.year(person, "born") + self.rng.randint(-6, 6))
        partner.facts["spouse"] = person
        return partner

    def _founded(self, town: Entity) -> Value:
        return str(self.rng.randint(1100, 1830))

    def _mayor(self, town: Entity) -> Value:
        mayor = self.person()
        mayor.facts["job"] = "politician"
        return mayor


RELATIONS = {
    "film": ("director", "year", "country", "genre"),
    "person": ("born", "birthplace", "died", "deathplace", "father", "mother", "spouse"),
    "town": ("founded", "mayor", "country"),
}
IN_LAWS = {
    "paternal grandfather": ("father", "father"),
    "maternal grandmother": ("mother", "mother"),
    "mother-in-law": ("spouse", "mother"),
    "father-in-law": ("spouse", "father"),
}
_CHANGEABLE = (
    ("film", "director"),
    ("film", "country"),
    ("person", "birthplace"),
    ("person", "deathplace"),
    ("town", "mayor"),
)


def populate(world: World, sizes: Sizes) -> None:
    """Fill a world: films that share directors, directors with families, towns with mayors."""
    world.spread = 0.0
    for _ in range(sizes.towns):
        world.town()
    for _ in range(sizes.directors):
        world.director()
    for index in range(sizes.films):
        film = world.film()
        film.facts["director"] = world.directors[index % sizes.directors]
    for film in list(world.films):
        for relation in RELATIONS["film"]:
            world.value(film, relation)
    for index, person in enumerate(list(world.directors)):
        for relation in RELATIONS["person"]:
            world.value(person, relation)
        first, second = list(IN_LAWS.values())[index % len(IN_LAWS)]
        relative = world.value(person, first)
        assert isinstance(relative, Entity)
        world.value(relative, second)
    for town in list(world.towns):
        for relation in RELATIONS["town"]:
            world.value(town, relation)
    for entity in list(world.entities):
        if entity.kind == "person":
            for relation in ("born", "birthplace", "job"):
                world.value(entity, relation)
    for film in world.films[: sizes.remakes]:
        remake = world._add("film", film.name)
        remake.facts["director"] = world.rng.choice(
            [one for one in world.directors if one is not film.facts["director"]]
        )
        for relation in RELATIONS["film"]:
            world.value(remake, relation)
        while remake.facts["year"] == film.facts["year"]:
            del remake.facts["year"]
            world.value(remake, "year")
        film.label, remake.label = f"{film.facts['year']} film", f"{remake.facts['year']} film"


def give_weights(world: World, seldom: int) -> None:
    """Zipf's law of exposures over films, shifted so that the head is learnt; the last `seldom` fall to a hundredth."""
    head = len(world.films) - seldom
    for rank, film in enumerate(world.films):
        film.weight = 30 / (rank + 30) if rank < head else 30 / (head + 30) * 0.01 ** ((rank - head + 1) / seldom)
    for film in world.films:
        director = film.facts["director"]
        assert isinstance(director, Entity)
        director.weight += film.weight
        for relation in ("birthplace", "deathplace"):
            town = director.facts[relation]
            assert isinstance(town, Entity)
            town.weight += film.weight / 2


def change_facts(known: World, unknown: World, share: float) -> None:
    """Let a share of the known facts change: training keeps the old value, the corpus has the new one."""
    for kind, relation in _CHANGEABLE:
        entities = [one for one in known.entities if one.kind == kind and one.weight > 0 and not one.label]
        for entity in known.rng.sample(entities, max(1, round(share * len(entities)))):
            old = entity.facts[relation]
            entity.old[relation] = old
            if relation == "director":
                new: Value = known.rng.choice(
                    [one for one in unknown.directors if _lived(one, entity)] or unknown.directors
                )
            elif relation == "country":
                new = known.rng.choice([one for one in names.COUNTRIES if one != old])
            elif relation == "mayor":
                new = unknown.person()
                new.facts.update(
                    job="politician", born=str(known.rng.randint(1870, 1945)), birthplace=unknown.some_town()
                )
            else:
                new = known.rng.choice(unknown.towns)
            entity.facts[relation] = new


def _lived(person: Entity, film: Entity) -> bool:
    born, died, year = (int(text_of(one)) for one in (person.facts["born"], person.facts["died"], film.facts["year"]))
    return born + 20 <= year <= died


def memory(entity: Entity, relation: str) -> Value | None:
    """What training says of a known entity: the old value where the fact has changed."""
    return entity.old.get(relation, entity.facts.get(relation))


@dataclass(frozen=True)
class Almanac:
    """Both halves of the encyclopedia."""

    seed: int
    known: World
    unknown: World

    @property
    def entities(self) -> list[Entity]:
        return [*self.known.entities, *self.unknown.entities]


KNOWN = Sizes(films=124, directors=42, towns=26, seldom=40, remakes=8)
UNKNOWN = Sizes(films=270, directors=96, towns=64, remakes=24)


def build_world(seed: int = 0, known: Sizes = KNOWN, unknown: Sizes = UNKNOWN, changed: float = 0.2) -> Almanac:
    """The encyclopedia of a seed. Sizes of 0 and sizes that the pools of names cannot fill raise `AlmanacError`."""
    if not 0.0 <= changed <= 1.0:
        raise AlmanacError(f"the share of changed facts must be between 0 and 1, got {changed}")
    first = World("known", random.Random(f"almanac known {seed}"), "k")
    second = World("unknown", random.Random(f"almanac unknown {seed}"), "u")
    populate(first, known)
    populate(second, unknown)
    give_weights(first, known.seldom)
    change_facts(first, second, changed)
    return Almanac(seed, first, second)
