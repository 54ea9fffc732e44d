"""How Almanac is written: sentences of reasonings and passages, by the wordings of ``text.toml``."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.almanac import names
from tools.almanac.world import Entity, Value, text_of

_READ: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LEAD_INS, ASIDES, _THINGS = (tuple(_READ[name]) for name in ("lead_ins", "asides", "things"))
_SAYS, _OPENINGS, _BESIDE = (
    {key: tuple(sentences) for key, sentences in _READ[name].items()} for name in ("passages", "openings", "beside")
)


def expand(wording: str) -> tuple[str, ...]:
    """Every sentence that a wording with choices stands for, in order."""
    if "[" not in wording:
        return (wording,)
    before, rest = wording.split("[", 1)
    choices, after = rest.split("]", 1)
    return tuple(before + choice + tail for choice in choices.split("|") for tail in expand(after))


STEPS: dict[str, tuple[str, ...]] = {
    relation: tuple(dict.fromkeys(sentence for one in wordings for sentence in expand(one)))
    for relation, wordings in _READ["steps"].items()
}


def wording_key(entity: Entity, relation: str) -> str:
    return f"{entity.kind} {relation}" if relation == "country" else relation


def step(rng: random.Random, subject: Entity, relation: str, value: Value) -> tuple[str, int]:
    """One sentence of the reasoning and where in it the value begins (characters)."""
    before, after = rng.choice(STEPS[wording_key(subject, relation)]).replace("{s}", subject.title).split("{v}")
    if rng.random() < 0.3:
        before = rng.choice(LEAD_INS) + (
            "the" + before[3:] if before.startswith("The ") and not _is_name(before, subject) else before
        )
    return before + text_of(value) + after, len(before)


def _is_name(sentence: str, subject: Entity) -> bool:
    return sentence.startswith(subject.title)


def _fill(template: str, entity: Entity, values: dict[str, str]) -> str:
    if entity.kind == "person":
        p, p2, q = ("she", "her", "her") if entity.female else ("he", "him", "his")
    else:
        p, p2, q = "it", "it", "its"
    return template.format(s=entity.name, p=p, p2=p2, q=q, P=p.capitalize(), Q=q.capitalize(), **values)


def passage(
    rng: random.Random, entity: Entity, facts: dict[str, str], fill: float = 0.6, words: int = 100, pool: str = "fresh"
) -> str:
    """A passage of at most `words` words that states every given fact of the entity.

    facts: relation to text. fill: the share of the words left that sentences beside the facts may use. pool: where the
    names of nobody in particular come from.
    """
    openings = [one for one in _OPENINGS[entity.kind] if all(slot == "s" or slot in facts for slot in _slots(one))]
    opening = rng.choice(openings)
    if opening.endswith("is a film.") and "year" in facts and rng.random() < 0.7:
        opening = rng.choice(openings)
    first = _fill(opening, entity, facts)
    said = {relation for relation in facts if f"{{{relation}}}" in opening}
    sentences = []
    for relation in facts:
        if relation not in said:
            wording = rng.choice(expand(rng.choice(_SAYS[wording_key(entity, relation)])))
            sentences.append(_fill(wording, entity, {"v": facts[relation]}))
    rng.shuffle(sentences)
    budget = len(f"{first} {' '.join(sentences)}".split())
    room = budget + fill * (words - budget)
    beside = list(_BESIDE[entity.kind])
    rng.shuffle(beside)
    for template in beside:
        sentence = _fill(_noise(rng, template, pool), entity, {})
        budget += len(sentence.split())
        if budget > room:
            break
        sentences.insert(rng.randint(0, len(sentences)), sentence)
    return " ".join([first, *sentences])


def _slots(template: str) -> Iterable[str]:
    return (part.split("}")[0] for part in template.split("{")[1:])


def _noise(rng: random.Random, template: str, pool: str) -> str:
    while "{x}" in template:
        template = template.replace("{x}", names.any_person(rng, pool), 1)
    return template.replace("{n}", str(rng.randint(3, 90)))


def thing_passage(rng: random.Random, pool: str) -> tuple[str, str]:
    """Title and text of a passage about something no question asks for."""
    name = rng.choice(names.pool("thing", pool))
    year, town = rng.randint(1850, 1990), rng.choice(names.pool("town", pool))
    opening = f"{name} is a {rng.choice(_THINGS)} that {names.any_person(rng, pool)} began in {year} in {town}."
    beside = rng.sample(_BESIDE["thing"], rng.randint(3, 6))
    return name, " ".join([opening, *(_noise(rng, one, pool) for one in beside)])


def second_passage(rng: random.Random, entity: Entity, pool: str) -> str:
    """A further passage about an entity that states none of its facts."""
    opening = {
        "film": "The making of {s} took {n} months.",
        "person": "The later work of {s} fills {n} pages.",
        "town": "The streets of {s} are narrow.",
    }
    beside = rng.sample(_BESIDE[entity.kind], min(len(_BESIDE[entity.kind]), 7))
    return " ".join(_fill(_noise(rng, one, pool), entity, {}) for one in [opening[entity.kind], *beside])


def statement(rng: random.Random, entity: Entity, relation: str, value: str) -> tuple[str, int]:
    """One sentence that names its entity and states a fact, as a passage might, and where in it the value begins."""
    wordings = [one for one in _SAYS[wording_key(entity, relation)] if "{s}" in one]
    if not wordings or rng.random() < 0.6:
        before, after = rng.choice(STEPS[wording_key(entity, relation)]).replace("{s}", entity.title).split("{v}")
    else:
        before, after = rng.choice(expand(rng.choice(wordings))).replace("{s}", entity.title).split("{v}")
    return before + value + after, len(before)
