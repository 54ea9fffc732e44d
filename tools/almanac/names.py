"""Names of Almanac: real first names, invented surnames and towns, film titles; each name belongs to one pool.

The pool is decided by a hash of the name, so it holds for every seed: `known` names may be memorised, `fresh` names are
drawn anew for every training example, `unknown` names stand only in the corpus that users search.
"""

from __future__ import annotations

import json
import random
from functools import cache
from hashlib import blake2b
from pathlib import Path

POOLS = ("known", "fresh", "unknown")
_SHARES = {
    "surname": (14, 76),
    "town": (12, 76),
    "title": (6, 84),
    "thing": (6, 84),
}  # percent: known below, fresh below

_PARTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "names.json").read_text(encoding="utf-8"))
FEMALE, MALE = tuple(_PARTS["female"]), tuple(_PARTS["male"])
COUNTRIES, GENRES, JOBS = tuple(_PARTS["countries"]), tuple(_PARTS["genres"]), tuple(_PARTS["jobs"])


def pool_of(kind: str, name: str) -> str:
    """The pool of a surname, town, title or thing; the same for every seed."""
    known, fresh = _SHARES[kind]
    number = int.from_bytes(blake2b(f"{kind}:{name}".encode(), digest_size=4).digest(), "big") % 100
    return "known" if number < known else "fresh" if number < fresh else "unknown"


@cache
def pool(kind: str, name: str) -> tuple[str, ...]:
    """All names of one kind (`surname`, `town`, `title`, `thing`) in the pool called `name`, in a fixed order."""
    if kind == "surname":
        every = [a + b for a in _PARTS["surname heads"] for b in _PARTS["surname tails"] if a[-1] != b[0]]
    elif kind == "town":
        every = [a + b for a in _PARTS["town heads"] for b in _PARTS["town tails"] if a.lower() != b and a[-1] != b[0]]
    elif kind == "title":
        every = [f"The {a} {b}" for a in _PARTS["title adjectives"] for b in _PARTS["title nouns"]]
    else:
        every = [f"{a} and {b}" for a in _PARTS["title nouns"] for b in _PARTS["title nouns"] if a != b]
    return tuple(one for one in every if pool_of(kind, one) == name)


def first_name(rng: random.Random, female: bool) -> str:
    return rng.choice(FEMALE if female else MALE)


def any_person(rng: random.Random, pool_name: str) -> str:
    """A name of nobody in particular, for sentences that do not matter."""
    return f"{first_name(rng, rng.random() < 0.5)} {rng.choice(pool('surname', pool_name))}"


def syllables(end: str) -> list[str]:
    """The `heads` or the `tails` of surnames and towns."""
    return [*_PARTS[f"surname {end}"], *_PARTS[f"town {end}"]]


def words() -> list[str]:
    """First names, the words of titles, countries, genres and trades."""
    titles = [*_PARTS["title adjectives"], *_PARTS["title nouns"]]
    return [*FEMALE, *MALE, *titles, *COUNTRIES, *GENRES, *JOBS]
