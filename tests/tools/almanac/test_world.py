"""The world holds together, its halves share no name, and it refuses what it cannot be made from."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tools.almanac import names
from tools.almanac.benchmarks import taught_facts
from tools.almanac.encyclopedia import Encyclopedia
from tools.almanac.world import Almanac, AlmanacError, Entity, Sizes, World, build_world, text_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def almanac() -> Almanac:
    return build_world(0)


def _year(entity: Entity, relation: str) -> int:
    return int(text_of(entity.facts[relation]))


def test_is_no_toy(almanac: Almanac) -> None:
    assert sum(one.weight > 0 for one in almanac.known.films) >= 100
    assert len(taught_facts(almanac)) >= 400
    assert len(Encyclopedia(almanac).entries) >= 2000


def test_same_seed_same_world(almanac: Almanac) -> None:
    def flat(one: Almanac) -> list[tuple[str, str, list[tuple[str, str]]]]:
        return [(e.id, e.title, [(name, text_of(value)) for name, value in e.facts.items()]) for e in one.entities]

    assert flat(build_world(0)) == flat(almanac)
    assert flat(build_world(1)) != flat(almanac)


def test_films_fit_the_lives_of_their_directors(almanac: Almanac) -> None:
    for film in [*almanac.known.films, *almanac.unknown.films]:
        director = film.facts["director"]
        assert isinstance(director, Entity)
        assert director.facts["job"] == "film director"
        assert _year(director, "born") + 20 <= _year(film, "year") <= _year(director, "died")


def test_families_fit_together(almanac: Almanac) -> None:
    for person in (one for one in almanac.entities if one.kind == "person"):
        for relation in ("father", "mother"):
            parent = person.facts.get(relation)
            if isinstance(parent, Entity):
                assert 20 <= _year(person, "born") - _year(parent, "born") <= 38
                assert parent.female == (relation == "mother")
        father, spouse = person.facts.get("father"), person.facts.get("spouse")
        if isinstance(father, Entity):
            assert father.name.split()[-1] == person.name.split()[-1]
        if isinstance(spouse, Entity):
            assert spouse.facts["spouse"] is person


def test_a_changed_fact_keeps_the_old_value_and_gets_one_that_training_cannot_name(almanac: Almanac) -> None:
    changed = [(one, name) for one in almanac.known.entities for name in one.old]
    assert len(changed) >= 20
    for one, name in changed:
        assert one.facts[name] != one.old[name]
        if isinstance(one.facts[name], Entity):
            assert one.facts[name].pool == "unknown"


def test_exposures_fall_from_often_to_seldom(almanac: Almanac) -> None:
    weights = [film.weight for film in almanac.known.films if film.weight > 0]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] / weights[-1] > 50


def test_near_duplicates(almanac: Almanac) -> None:
    titles = Counter(film.name for film in almanac.entities if film.kind == "film")
    twice = [film for film in almanac.entities if film.kind == "film" and titles[film.name] > 1]
    assert len(twice) >= 40
    assert all(film.label == f"{film.facts['year']} film" for film in twice)
    book = Encyclopedia(almanac)
    directors = {one.name for one in [*almanac.known.directors, *almanac.unknown.directors]}
    assert len({one.name for one in book.namesakes} & directors) >= 30
    assert len({one.title for one in book.entries}) > len({one.name for one in almanac.entities})


@pytest.mark.parametrize("kind", ["surname", "town", "title", "thing"])
def test_pools_share_no_name(kind: str) -> None:
    pools = [set(names.pool(kind, one)) for one in names.POOLS]
    assert all(pools)
    assert len(set.union(*pools)) == sum(map(len, pools))


def test_a_surname_is_nobodys_first_name() -> None:
    surnames = {one for pool in names.POOLS for one in names.pool("surname", pool)}
    assert not surnames & {*names.FEMALE, *names.MALE}


@pytest.mark.parametrize(
    "sizes", [{"films": 0}, {"directors": 1}, {"towns": 0}, {"films": 5, "seldom": 5}, {"remakes": -1}]
)
def test_senseless_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(AlmanacError):
        Sizes(**{"films": 10, "directors": 4, "towns": 4, **sizes})


def test_a_world_larger_than_its_names_is_refused() -> None:
    with pytest.raises(AlmanacError, match="smaller world"):
        build_world(0, known=Sizes(films=4000, directors=10, towns=4))


def test_an_unknown_pool_is_refused() -> None:
    with pytest.raises(AlmanacError, match="known, fresh, unknown"):
        World("secret", random.Random(0), "x")


def test_a_share_of_changes_beyond_one_is_refused() -> None:
    with pytest.raises(AlmanacError, match="between 0 and 1"):
        build_world(0, changed=1.5)
