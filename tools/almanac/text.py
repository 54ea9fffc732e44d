"""How Almanac is written: several wordings of every fact, for reasoning and for passages, and sentences beside them."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tools.almanac import names
from tools.almanac.world import Entity, Value, text_of

# {s} the subject, {v} the value, [a|b] a choice. Each sentence states one fact; which wording comes is chance.
_STEPS: dict[str, tuple[str, ...]] = {
    "director": (
        "[The film |The picture |]{s} was [directed|made|shot] by {v}.",
        "The [director|maker] of [the film |]{s} [is|was] {v}.",
        "{s} is a [film|picture|work] by {v}.",
    ),
    "year": (
        "[The film |]{s} [came out|was released|was first shown] in {v}.",
        "The [release|first showing] of {s} was in {v}.",
        "{s} is a [film|picture] of {v}.",
    ),
    "film country": (
        "[The film |The picture |]{s} was [made|shot|produced] in {v}.",
        "{s} is a [film|picture] from {v}.",
        "The country of {s} is {v}.",
    ),
    "genre": ("{s} belongs to the genre {v}.", "The genre of [the film |]{s} is {v}."),
    "born": (
        "{s} was born in [the year |]{v}.",
        "The birth of {s} was in {v}.",
        "The year of birth of {s} [is|was] {v}.",
        "{s} came into the world in {v}.",
    ),
    "birthplace": (
        "{s} was born [in the town of|at] {v}.",
        "The [birthplace|home town|place of birth] of {s} [is|was] {v}.",
        "{s} [comes|came] from {v}.",
    ),
    "died": (
        "{s} died in [the year |]{v}.",
        "The death of {s} was in {v}.",
        "The year of death of {s} [is|was] {v}.",
        "{s} lived until {v}.",
    ),
    "deathplace": (
        "{s} died [in the town of|at] {v}.",
        "The place of death of {s} [is|was] {v}.",
        "{s} spent the last days at {v}.",
    ),
    "father": (
        "The father of {s} [is|was] {v}.",
        "{s} [is|was] a child of the father {v}.",
        "{s} had {v} for a father.",
    ),
    "mother": (
        "The mother of {s} [is|was] {v}.",
        "{s} [is|was] a child of the mother {v}.",
        "{s} had {v} for a mother.",
    ),
    "spouse": (
        "{s} was married to {v}.",
        "The spouse of {s} [is|was] {v}.",
        "{s} [married|was the spouse of] {v}.",
    ),
    "founded": (
        "[The town of |]{s} was founded in {v}.",
        "The founding of {s} was in {v}.",
        "{s} [dates from|has stood since] {v}.",
    ),
    "mayor": (
        "The mayor of {s} is {v}.",
        "{s} has {v} as its mayor.",
        "[The town of |]{s} is [led|governed] by [the mayor |]{v}.",
    ),
    "town country": (
        "[The town of |]{s} lies in {v}.",
        "{s} is a town in {v}.",
        "The country of {s} is {v}.",
    ),
}


def expand(wording: str) -> tuple[str, ...]:
    """Every sentence that a wording with choices stands for, in order."""
    if "[" not in wording:
        return (wording,)
    before, rest = wording.split("[", 1)
    choices, after = rest.split("]", 1)
    return tuple(before + choice + tail for choice in choices.split("|") for tail in expand(after))


STEPS: dict[str, tuple[str, ...]] = {
    relation: tuple(dict.fromkeys(sentence for one in wordings for sentence in expand(one)))
    for relation, wordings in _STEPS.items()
}
LEAD_INS = (
    "First, ",
    "To begin with, ",
    "As is known, ",
    "Here, ",
    "Clearly, ",
    "By all accounts, ",
    "Now, ",
    "As the records say, ",
    "It is said that ",
    "We know that ",
    "In fact, ",
    "As far as anybody knows, ",
)
ASIDES = ("That is the first thing to know.", "This is the first step.", "So much for the first part.")

# What a passage says of a fact when its first sentence has not said it yet; {p} is it, he or she, {q} its, his or her.
_SAYS: dict[str, tuple[str, ...]] = {
    "director": (
        "{P} was [directed|made] by {v}.",
        "The director was {v}.",
        "{v} directed {p2}[ with a small crew|].",
        "The [director|maker] of {s} was {v}.",
        "{s} was [directed|shot] by {v}.",
    ),
    "year": (
        "{P} was released in [the spring of |March |]{v}.",
        "The first showing was in {v}.",
        "{P} came out in [the autumn of |]{v}.",
        "Cinemas showed it from {v} on.",
        "{s} came out in {v}.",
    ),
    "film country": ("{P} was made in {v}.", "The film comes from {v}.", "It was shot entirely in {v}."),
    "genre": ("Critics count it as a {v} film.", "The genre is {v}."),
    "born": (
        "{P} was born in [May |the winter of |]{v}.",
        "The year of birth was {v}.",
        "{Q} birth was recorded in {v}.",
        "{s} was born in {v}.",
    ),
    "birthplace": (
        "{P} came from the [old |]town of {v}.",
        "{Q} birthplace was {v}.",
        "{P} was born at {v}.",
        "{P} was born in {v}.",
        "{s} was born in {v}.",
    ),
    "died": (
        "{P} died in [June |the summer of |]{v}.",
        "{Q} death came in {v}.",
        "{P} lived until {v}.",
        "{s} died in {v}.",
    ),
    "deathplace": (
        "{P} died at {v}.",
        "{Q} place of death was {v}.",
        "{P} spent {q} last days in {v} and died there.",
        "{s} died at {v}.",
    ),
    "father": (
        "{Q} father was {v}.",
        "{P} was raised by {q} father, {v}.",
        "{v} was {q} father.",
        "The father of {s} was {v}.",
    ),
    "mother": (
        "{Q} mother was {v}.",
        "{P} was a child of {v}, {q} mother.",
        "{v} was {q} mother.",
        "The mother of {s} was {v}.",
    ),
    "spouse": (
        "{P} was [happily |]married to {v}.",
        "{P} married {v}.",
        "{Q} spouse was {v}.",
        "{s} married {v}.",
    ),
    "job": ("{P} worked as a {v}.", "By trade {p} was a {v}."),
    "founded": (
        "{P} was founded in {v}.",
        "The town dates from {v}.",
        "Its charter was granted at the founding in {v}.",
        "{s} was founded in {v}.",
    ),
    "mayor": ("The mayor is {v}.", "{P} is led by mayor {v}.", "{v} is its mayor.", "The mayor of {s} is {v}."),
    "town country": ("{P} lies in {v}.", "The town belongs to {v}.", "{s} lies in {v}."),
}
_OPENINGS: dict[str, tuple[str, ...]] = {
    "film": (
        "{s} is a {year} {genre} film directed by {director}.",
        "{s} is a {genre} film from {country}.",
        "{s} is a film of {year} by the director {director}.",
        "{s} is a {year} film.",
        "{s} is a {genre} film made in {country} and released in {year}.",
        "{s} is a film.",
    ),
    "person": (
        "{s} ({born} to {died}) was a {job}.",
        "{s}, born in {born} in {birthplace}, was a {job}.",
        "{s} was a {job}.",
        "{s} was a {job} from the town of {birthplace}.",
        "{s}, child of {father} and {mother}, was a {job}.",
        "{s} was a {job} who died in {died} in {deathplace}.",
    ),
    "town": (
        "{s} is a town in {country}.",
        "{s}, founded in {founded}, is a town in {country}.",
        "{s} is a town.",
        "{s} is a small town led by the mayor {mayor}.",
    ),
}
# Sentences that do not matter. {n} a number, {x} a name of nobody in particular.
_BESIDE: dict[str, tuple[str, ...]] = {
    "film": (
        "The music was written by {x} within {n} days.",
        "{x} and {x} play the main parts.",
        "The script went through {n} versions before the work began.",
        "Most scenes were shot in a single summer.",
        "It ran for {n} weeks in the larger cinemas.",
        "The camera was in the hands of {x}.",
        "A restored copy was shown at a festival much later.",
        "Reviewers praised the light and the slow pace.",
        "The story follows a family through one long winter.",
        "It tells of two friends who lose and find each other.",
        "A novel with the same plot was sold in {n} thousand copies.",
        "The costumes by {x} won a small prize.",
        "Only {n} prints of the first version are left.",
        "The studio had asked for a happier ending.",
        "The producer {x} called it a matter of the heart.",
    ),
    "person": (
        "{P} was fond of long walks and kept a diary of {n} volumes.",
        "A street bears {q} name.",
        "{Q} letters to {x} fill {n} boxes in the archive.",
        "Friends remembered {p2} as patient and a little shy.",
        "{P} taught evening classes for {n} years.",
        "A portrait by {x} hangs in the town hall.",
        "{P} spoke several languages and played the cello.",
        "{Q} house became a small museum.",
        "{P} was often confused with {x}, a neighbour.",
        "At school {p} shared a desk with {x}.",
        "{P} received a medal for {q} work.",
        "{Q} lectures were printed {n} times.",
        "{P} never learnt to drive.",
    ),
    "town": (
        "It has about {n} hundred inhabitants.",
        "A bridge with {n} arches crosses the river.",
        "The market is held every second Saturday.",
        "The old mill was painted by {x}.",
        "A railway reached the place late.",
        "Its school carries the name of {x}.",
        "The church tower is {n} metres high.",
        "Visitors come for the gardens and the pottery.",
        "A flood destroyed {n} houses near the harbour.",
        "The local paper is edited by {x}.",
        "Wool and glass made the place rich for a while.",
    ),
    "thing": (
        "The firm employs {n} people.",
        "{x} and {x} began the work together.",
        "The first years were hard, and {x} left after {n} months.",
        "Most of the customers live nearby.",
        "A fire destroyed the archive.",
        "The present head is {x}.",
        "Its sign shows a bird and a key.",
        "The anniversary was kept with {n} guests.",
    ),
}
_THINGS = (
    "publishing house",
    "string quartet",
    "shipping company",
    "weekly magazine",
    "dance band",
    "brewery",
    "comic novel",
    "stage play",
)


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
