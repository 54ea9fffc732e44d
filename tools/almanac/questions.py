"""The kinds of questions of Almanac, each with the steps that answer it; the benchmarks and the training share them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from tools.almanac import text
from tools.almanac.world import IN_LAWS, AlmanacError, Entity, Value, text_of

SPLITS = ("train", "dev", "test")
Look = Callable[[Entity, str], Value]  # the value of a relation: what the corpus says, or what training says
Pick = Callable[[str], Entity]  # an entity of a kind: film, person (a director) or town


@dataclass(frozen=True)
class Step:
    """One fact that the answer needs."""

    subject: Entity
    relation: str
    value: Value


@dataclass(frozen=True)
class Item:
    """A question with the reasoning that answers it."""

    kind: str
    question: str
    steps: tuple[Step, ...]
    close: str  # a sentence that concludes from the steps; may be empty
    answer: str
    about: tuple[Entity, ...]  # what the question names

    @property
    def key(self) -> str:
        """What decides the split: the set of entities asked about, and for one entity the chain too."""
        named = "|".join(sorted(one.title for one in self.about))
        return named if len(self.about) > 1 else f"{self.kind}|{named}"


@dataclass(frozen=True)
class Said:
    """A step as written: `start` and `end` are the characters of its value in the reasoning."""

    step: Step
    start: int
    end: int


def split_of(key: str) -> str:
    """`train` (45 %), `dev` (15 %) or `test` (40 %), by a hash of what is asked."""
    number = int.from_bytes(blake2b(f"split:{key}".encode(), digest_size=4).digest(), "big") % 100
    return "train" if number < 45 else "dev" if number < 60 else "test"


def reasoning(rng: random.Random, item: Item, spaces: float = 0.0) -> tuple[str, list[Said]]:
    """The reasoning in words and where each value stands. `spaces`: how often two spaces part two sentences."""
    whole, said = "", []
    for index, one in enumerate(item.steps):
        if index == 1 and rng.random() < 0.05:
            whole += " " + rng.choice(text.ASIDES)
        sentence, start = text.step(rng, one.subject, one.relation, one.value)
        if whole:
            whole += "  " if rng.random() < spaces else " "
        said.append(Said(one, len(whole) + start, len(whole) + start + len(text_of(one.value))))
        whole += sentence
    return whole + (f" {item.close}" if item.close else ""), said


_OF_DIRECTOR = {
    "birthplace": ("Where was the director of film {s} born?", "In which town was the director of {s} born?"),
    "deathplace": ("Where did the director of film {s} die?", "What is the place of death of the director of {s}?"),
    "born": ("In what year was the director of film {s} born?", "When was the director of {s} born?"),
    "died": ("In what year did the director of film {s} die?", "When did the director of {s} die?"),
    "father": ("Who is the father of the director of film {s}?", "Who was the father of the director of {s}?"),
    "mother": ("Who is the mother of the director of film {s}?", "Who was the mother of the director of {s}?"),
    "spouse": ("Who is the spouse of the director of film {s}?", "Whom did the director of {s} marry?"),
}
_CHAINS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    **{f"director {relation}": ("film", ("director", relation), asked) for relation, asked in _OF_DIRECTOR.items()},
    "birthplace mayor": ("person", ("birthplace", "mayor"), ("Who is the mayor of the town where {s} was born?",)),
    "birthplace founded": ("person", ("birthplace", "founded"), ("In what year was the birthplace of {s} founded?",)),
    "birthplace country": ("person", ("birthplace", "country"), ("In which country is the birthplace of {s}?",)),
    "deathplace mayor": ("person", ("deathplace", "mayor"), ("Who is the mayor of the town where {s} died?",)),
    "deathplace country": ("person", ("deathplace", "country"), ("In which country is the town where {s} died?",)),
    "director birthplace country": (
        "film",
        ("director", "birthplace", "country"),
        ("In which country was the director of film {s} born?",),
    ),
    "director birthplace mayor": (
        "film",
        ("director", "birthplace", "mayor"),
        ("Who is the mayor of the town where the director of film {s} was born?",),
    ),
    **{name: ("person", relations, (f"Who is the {name} of {{s}}?",)) for name, relations in IN_LAWS.items()},
    "film director": ("film", ("director",), ("Who directed the film {s}?", "Who is the director of {s}?")),
    "film year": ("film", ("year",), ("In what year did the film {s} come out?", "When was {s} released?")),
    "film country": ("film", ("country",), ("In which country was the film {s} made?",)),
    "film genre": ("film", ("genre",), ("To which genre does the film {s} belong?",)),
    "town founded": ("town", ("founded",), ("In what year was {s} founded?",)),
    "town mayor": ("town", ("mayor",), ("Who is the mayor of {s}?",)),
    "town country": ("town", ("country",), ("In which country is {s}?",)),
    **{
        f"person {relation}": ("person", (relation,), (asked,))
        for relation, asked in {
            "born": "In what year was {s} born?",
            "birthplace": "Where was {s} born?",
            "died": "In what year did {s} die?",
            "deathplace": "Where did {s} die?",
            "father": "Who is the father of {s}?",
            "mother": "Who is the mother of {s}?",
            "spouse": "Who is the spouse of {s}?",
        }.items()
    },
}
_FIRST = {
    "first film": (
        "film",
        "year",
        ("Which film came out first, {a} or {b}?", "Which film was released earlier, {a} or {b}?"),
        min,
    ),
    "later film": ("film", "year", ("Which film came out later, {a} or {b}?",), max),
    "first born": ("person", "born", ("Who was born first, {a} or {b}?", "Who was born earlier, {a} or {b}?"), min),
    "later born": ("person", "born", ("Who was born later, {a} or {b}?",), max),
    "older town": ("town", "founded", ("Which town was founded first, {a} or {b}?",), min),
    "first director": ("film", "director born", ("Which film has the director who was born first, {a} or {b}?",), min),
    "later director": ("film", "director born", ("Which film has the director who was born later, {a} or {b}?",), max),
}
_SAME = {
    "same country": ("film", ("country",), ("Are the films {a} and {b} from the same country?",), "country"),
    "same birthplace": ("person", ("birthplace",), ("Were {a} and {b} born in the same town?",), "town"),
    "same directors town": (
        "film",
        ("director", "birthplace"),
        ("Do the films {a} and {b} have directors born in the same town?",),
        "town",
    ),
}
# Yes or no: is the year of the first chain before that of the second?
_BEFORE = {
    "alive at release": ("person", ("died",), "film", ("year",), "Did {a} die before the film {b} came out?"),
    "born before release": ("person", ("born",), "film", ("year",), "Was {a} born before the film {b} came out?"),
    "born before death": ("person", ("born",), "person", ("died",), "Was {a} born before {b} died?"),
    "film before birth": ("film", ("year",), "person", ("born",), "Was the film {a} released before {b} was born?"),
}
AGE = "age at release"
CROSS = "film in town country"  # is the film from the country of the town?

CHAIN_KINDS = tuple(_CHAINS)
LONG_CHAINS = tuple(kind for kind, (_, relations, _) in _CHAINS.items() if len(relations) > 1)
SINGLE = tuple(kind for kind, (_, relations, _) in _CHAINS.items() if len(relations) == 1)
YES_NO = (*_SAME, *_BEFORE, CROSS)
COMPARE = tuple(_FIRST)
ALL_KINDS = (*_CHAINS, *_FIRST, *_SAME, *_BEFORE, AGE, CROSS)


def _walk(look: Look, start: Entity, relations: tuple[str, ...]) -> list[Step]:
    steps, at = [], start
    for relation in relations:
        value = look(at, relation)
        steps.append(Step(at, relation, value))
        if isinstance(value, Entity):
            at = value
    return steps


def make(kind: str, rng: random.Random, pick: Pick, look: Look) -> Item | None:
    """A question of a kind about entities that `pick` gives; None where they make none (twice the same, a tie)."""
    if kind in _CHAINS:
        start_kind, relations, asked = _CHAINS[kind]
        start = pick(start_kind)
        steps = _walk(look, start, relations)
        question = rng.choice(asked).format(s=start.title)
        return Item(kind, question, tuple(steps), "", text_of(steps[-1].value), (start,))
    if kind == AGE:
        film = pick("film")
        steps = [*_walk(look, film, ("director", "born")), Step(film, "year", look(film, "year"))]
        age = int(text_of(steps[2].value)) - int(text_of(steps[1].value))
        question = f"How old was the director of {film.title} in the year of its release?"
        close = reckon(int(text_of(steps[1].value)), int(text_of(steps[2].value)))
        return Item(kind, question, tuple(steps), close, str(age), (film,))
    return _pair(kind, rng, pick, look)


def single(rng: random.Random, step: Step) -> Item:
    """The question that asks for one fact by itself."""
    item = make(f"{step.subject.kind} {step.relation}", rng, lambda _: step.subject, lambda *_: step.value)
    assert item is not None
    return item


def _pair(kind: str, rng: random.Random, pick: Pick, look: Look) -> Item | None:
    if kind in _FIRST:
        entity_kind, relation, asked, best = _FIRST[kind]
        a, b = pick(entity_kind), pick(entity_kind)
        if a is b:
            return None
        walks = [_walk(look, one, tuple(relation.split())) for one in (a, b)]
        years = [int(text_of(walk[-1].value)) for walk in walks]
        if years[0] == years[1] or walks[0][-1].subject is walks[1][-1].subject:
            return None
        year = best(years)
        answer = (a, b)[years.index(year)].title
        close = f"{compare(*years)}, so the {'earlier' if best is min else 'later'} is {answer}."
        return Item(kind, rng.choice(asked).format(a=a.title, b=b.title), (*walks[0], *walks[1]), close, answer, (a, b))
    if kind in _SAME:
        entity_kind, relations, asked, word = _SAME[kind]
        a, b = pick(entity_kind), pick(entity_kind)
        if a is b:
            return None
        walks = [_walk(look, one, relations) for one in (a, b)]
        if len(relations) > 1 and walks[0][-1].subject is walks[1][-1].subject:
            return None
        question = rng.choice(asked).format(a=a.title, b=b.title)
        return _same(kind, question, (*walks[0], *walks[1]), (walks[0][-1], walks[1][-1]), word, (a, b))
    if kind == CROSS:
        a, b = pick("film"), pick("town")
        ends = (*_walk(look, a, ("country",)), *_walk(look, b, ("country",)))
        question = f"Was the film {a.title} made in the country of {b.title}?"
        return _same(kind, question, ends, (ends[0], ends[1]), "country", (a, b))
    if kind not in _BEFORE:
        raise AlmanacError(f"there is no kind of question {kind!r}; kinds are {', '.join(ALL_KINDS)}")
    first_kind, first, second_kind, second, asks = _BEFORE[kind]
    a, b = pick(first_kind), pick(second_kind)
    if a is b:
        return None
    steps = (*_walk(look, a, first), *_walk(look, b, second))
    early, late = (int(text_of(walk)) for walk in (steps[len(first) - 1].value, steps[-1].value))
    if early == late:
        return None
    before = early < late
    close = f"{compare(early, late)}."
    return Item(kind, asks.format(a=a.title, b=b.title), steps, close, "yes" if before else "no", (a, b))


def compare(first: int, second: int) -> str:
    """Two years compared by their first two digits, or where those are the same by their last two."""
    a, b = (first // 100, second // 100) if first // 100 != second // 100 else (first % 100, second % 100)
    return f"Of {first} and {second}, {a:02d} against {b:02d} is {'less' if a < b else 'more'}"


def reckon(first: int, second: int) -> str:
    """The years from one to a later one, fewer than a hundred, written out digit by digit as on paper."""
    low = less(second % 10, first % 10)
    high = less_one(second // 10 % 10, first // 10 % 10, "more" in low)
    return f"From {first} to {second}, {low}, {high}, so it is {second - first} years."


def alike(first: str, second: str, word: str) -> str:
    """Two places, towns or countries by `word`, and whether they are one."""
    plural = "countries" if word == "country" else "towns"
    return f"{first} and {second} are {f'the same {word}' if first == second else f'two different {plural}'}."


def less(digit: int, taken: int) -> str:
    """One digit less another, and whether one more is to be taken from the next."""
    return f"{digit} less {taken} is {(digit - taken) % 10}{' and 1 more' if digit < taken else ''}"


def less_one(digit: int, taken: int, more: bool) -> str:
    """The next digit less another, and less one more if so."""
    return f"{digit} less {taken}{' and 1' if more else ''} is {(digit - taken - more) % 10}"


def _same(
    kind: str, question: str, steps: tuple[Step, ...], ends: tuple[Step, Step], word: str, about: tuple[Entity, ...]
) -> Item:
    """Yes where both chains end at the same value, which stands there twice, side by side."""
    first, second = (text_of(one.value) for one in ends)
    same, close = first == second, alike(first, second, word)
    return Item(kind, question, steps, close, "yes" if same else "no", about)
