"""A quick look at a model in training: does it know, does it read, is it unsure where it should be? Teacher-forced."""

from __future__ import annotations

import random
from typing import Any

import torch
from tokenizers import Tokenizer

from tools.almanac import questions, text
from tools.almanac.questions import Item
from tools.almanac.world import Almanac, Entity, Value, World, memory, text_of


class Probe:
    """Fixed questions with their reasoning: from memory about the known half, from passages about the unknown half."""

    def __init__(self, almanac: Almanac, tokenizer: Tokenizer, count: int = 48, seed: int = 1) -> None:
        self.tokenizer = tokenizer
        rng = random.Random(f"almanac probe {seed}")
        self.known = [self._case(rng, self._item(rng, almanac.known, True), None) for _ in range(count)]
        self.unknown = [self._case(rng, self._item(rng, almanac.unknown, False), None) for _ in range(count)]
        read = [self._item(rng, almanac.unknown, False) for _ in range(count)]
        self.read = [self._case(rng, item, almanac.unknown) for item in read]

    def _item(self, rng: random.Random, world: World, known: bool) -> Item:
        def pick(kind: str) -> Entity:
            of = {"film": world.films, "person": world.directors, "town": world.towns}[kind]
            return rng.choices(of, [one.weight if known else 1.0 for one in of])[0]

        def look(entity: Entity, relation: str) -> Value:
            return (memory(entity, relation) if known else entity.facts.get(relation)) or ""

        while True:
            item = questions.make(rng.choice(questions.LONG_CHAINS), rng, pick, look)
            if item is not None and all(step.value != "" for step in item.steps):
                return item

    def _case(self, rng: random.Random, item: Item, world: World | None) -> tuple[list[int], list[list[int]]]:
        """Ids, and for every value of the reasoning the places of its pieces."""
        before = ""
        if world is not None:
            subjects = list({step.subject.id: step.subject for step in item.steps}.values())
            while len(subjects) < 3:
                subjects.append(rng.choice(world.films))
            rng.shuffle(subjects)
            for number, subject in enumerate(subjects, 1):
                facts = {name: text_of(value) for name, value in subject.facts.items()}
                before += f"[{number}] {text.passage(rng, subject, facts, 0.6, pool='unknown')}\n"
            before = f"Context:\n{before}Answer in the same format as before.\n"
        before += f"Question: {item.question}\nAnswer: "
        cot, said = questions.reasoning(rng, item)
        coded = self.tokenizer.encode(before + cot)
        places = []
        for one in said:
            start, end = len(before) + one.start, len(before) + one.end
            places.append([at for at, (a, b) in enumerate(coded.offsets) if a < end and b > start and b > a])
        return coded.ids, places

    @torch.no_grad()
    def _score(self, model: Any, cases: list[tuple[list[int], list[list[int]]]]) -> tuple[float, float]:
        """Share of the values that greedy decoding would write, and mean entropy (nats) at a value's first letter."""
        right, entropies = [], []
        for ids, places in cases:
            tensor = torch.tensor([ids], device=model.device)
            with torch.autocast(model.device.type, torch.bfloat16):
                logits = model(input_ids=tensor, use_cache=False).logits[0].float()
            best = logits.argmax(-1).tolist()
            for where in places:
                right.append(all(best[at - 1] == ids[at] for at in where))
                log = logits[where[0] - 1].log_softmax(-1)
                entropies.append(float(-(log.exp() * log).sum()))
        return sum(right) / len(right), sum(entropies) / len(entropies)

    def measure(self, model: Any) -> dict[str, float]:
        model.eval()
        names = {"known": self.known, "read": self.read, "unknown": self.unknown}
        found: dict[str, float] = {}
        for name, cases in names.items():
            share, entropy = self._score(model, cases)
            found |= {name: round(share, 3), f"{name}_entropy": round(entropy, 3)}
        model.train()
        return found
