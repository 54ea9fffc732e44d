"""A quick look at a model in training, teacher-forced: the share of values that greedy decoding would write whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer

from tools.almanac import questions, text
from tools.almanac.questions import Step
from tools.almanac.world import Almanac, Entity, World, memory, text_of

Case = tuple[list[int], list[int]]  # ids, and the places that count
Logits = Callable[[torch.Tensor], torch.Tensor]
_FIRST = {"film": ("director", "year"), "person": ("born", "birthplace", "father"), "town": ("mayor", "founded")}


class Probe:
    """Fixed cases, none of which is in training: the unknown half's first facts with their passage *alone* and with two
    look-alikes beside it (*near*), the known half's facts from memory (*known*), years compared and reckoned with."""

    def __init__(self, almanac: Almanac, tokenizer: Tokenizer, count: int = 48, seed: int = 1) -> None:
        self.tokenizer, self.rng = tokenizer, random.Random(f"almanac probe {seed}")
        steps = [self._step(almanac.unknown) for _ in range(count)]
        self.cases: dict[str, list[Case]] = {
            "alone": [self._read(one, [one.subject]) for one in steps],
            "near": [self._read(one, [one.subject, *self._near(almanac.unknown, one.subject)]) for one in steps],
            "known": [self._known(almanac.known) for _ in range(count)],
            "compare": [self._compare() for _ in range(count)],
            "reckon": [self._reckon() for _ in range(count)],
        }
        self.unknown = [self._asked("", one) for one in steps]

    def _step(self, world: World) -> Step:
        kind = self.rng.choices(("film", "person", "town"), (6, 3, 1))[0]
        subject = self.rng.choice({"film": world.films, "person": world.directors, "town": world.towns}[kind])
        relation = self.rng.choice(_FIRST[kind])
        return Step(subject, relation, subject.facts[relation])

    def _near(self, world: World, subject: Entity) -> list[Entity]:
        """Two entities of the kind; ones whose names share a word with the subject's come first."""
        of = {"film": world.films, "person": world.directors, "town": world.towns}[subject.kind]
        others = [one for one in of if one.name != subject.name]
        self.rng.shuffle(others)
        words = set(subject.name.split()) - {"The"}
        return sorted(others, key=lambda one: -len(words & set(one.name.split())))[:2]

    def _read(self, step: Step, about: list[Entity]) -> Case:
        lines = []
        for one in self.rng.sample(about, len(about)):
            facts = {name: text_of(value) for name, value in one.facts.items()}
            lines.append(text.passage(self.rng, one, facts, 0.6, pool="unknown"))
        numbered = "".join(f"[{number}] {one}\n" for number, one in enumerate(lines, 1))
        return self._asked(f"Context:\n{numbered}Answer in the same format as before.\n", step)

    def _asked(self, before: str, step: Step) -> Case:
        before += f"Question: {questions.single(self.rng, step).question}\nAnswer: "
        sentence, start = text.step(self.rng, step.subject, step.relation, step.value)
        return self._case(before + sentence, len(before) + start, len(text_of(step.value)))

    def _known(self, world: World) -> Case:
        films = [one for one in world.films if one.weight > 0]
        while True:
            subject = self.rng.choices(films, [one.weight for one in films])[0]
            if self.rng.random() < 0.5:
                director = memory(subject, "director")
                assert isinstance(director, Entity)
                subject = director
            value = memory(subject, relation := self.rng.choice(_FIRST[subject.kind]))
            if value:
                return self._asked("", Step(subject, relation, value))

    def _compare(self) -> Case:
        first, second = self.rng.sample(range(1870, 2010), 2)
        said = questions.compare(first, second)
        return self._case(said, said.rindex(" ") + 1, 4)

    def _reckon(self) -> Case:
        first = self.rng.randint(1870, 1950)
        said = questions.reckon(first, first + self.rng.randint(24, 62))
        given = len(f"From {first} to 1900,")
        return self._case(said, given, len(said) - given)

    def _case(self, whole: str, start: int, length: int) -> Case:
        coded = self.tokenizer.encode(whole)
        places = [at for at, (a, b) in enumerate(coded.offsets) if a < start + length and b > start and b > a]
        return coded.ids, places

    @torch.no_grad()
    def _score(self, logits: Logits, cases: list[Case]) -> tuple[float, float]:
        """Share of the cases right in every piece; mean of each case's largest entropy (nats)."""
        right, entropies = 0, 0.0
        for start in range(0, len(cases), 16):
            rows = cases[start : start + 16]
            longest = max(len(ids) for ids, _ in rows)
            found = logits(torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])).float()  # (b, t, v)
            for (ids, places), row in zip(rows, found, strict=True):
                at = torch.tensor(places)
                right += bool((row[at - 1].argmax(-1) == torch.tensor(ids)[at]).all())
                log = row[at - 1].log_softmax(-1)
                entropies += float(-(log.exp() * log).sum(-1).max())
        return right / len(cases), entropies / len(cases)

    def measure(self, logits: Logits) -> dict[str, Any]:
        found: dict[str, Any] = {name: round(self._score(logits, of)[0], 3) for name, of in self.cases.items()}
        found["known_entropy"] = round(self._score(logits, self.cases["known"])[1], 3)
        found["unknown_entropy"] = round(self._score(logits, self.unknown)[1], 3)
        return found
