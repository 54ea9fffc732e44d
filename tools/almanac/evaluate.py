"""Score a model on Almanac: `python -m tools.almanac.evaluate --model DIR`; writes scores and knowledge there.

`scores.json`: exact match on a split with the gold passages in the prompt and with none, and the entropy where an
answer states a fact. `knowledge.json`: which of the facts that training taught the model answers right from memory.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dragin_lab import BM25, Corpus
from dragin_lab.almanac import embedded_model_path
from dragin_lab.core.answers import exact_match, extract_answer
from dragin_lab.errors import DraginLabError
from dragin_lab.trace.trace import Passage
from tools.almanac import questions
from tools.almanac.benchmarks import BENCHMARKS, OPEN_TYPES, Asked, Knowledge, ask_all, passage_ids
from tools.almanac.build import exemplars
from tools.almanac.encyclopedia import Encyclopedia
from tools.almanac.world import AlmanacError, Entity, build_world, memory, text_of

NEW_PIECES = 96
SHOTS = 2


class Answerer:
    """A model with its tokenizer; answers many prompts side by side, greedily."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        if not (folder / "model.safetensors").exists():
            raise AlmanacError(f"{folder} holds no model.safetensors; train with python -m tools.almanac.train")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            self.model = model.to(device).eval()
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise AlmanacError(f"the model in {folder} cannot be loaded: {error}") from error
        except Exception as error:  # safetensors raises its own class for a torn file
            if type(error).__name__ != "SafetensorError":
                raise
            raise AlmanacError(
                f"{folder / 'model.safetensors'} is damaged ({error}); restore or train it again"
            ) from error
        self.device = device

    @torch.no_grad()
    def answers(self, prompts: list[str], pieces: int = NEW_PIECES, batch: int = 32) -> list[str]:
        """The text that the model writes behind each prompt."""
        order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
        found = [""] * len(prompts)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            coded = self.tokenizer([prompts[at] for at in rows], return_tensors="pt", padding=True).to(self.device)
            coded.pop("token_type_ids", None)
            ids = self.model.generate(**coded, max_new_tokens=pieces, do_sample=False)
            new = ids[:, coded["input_ids"].shape[1] :]
            for at, text in zip(rows, self.tokenizer.batch_decode(new, skip_special_tokens=True), strict=True):
                found[at] = text.split("\nQuestion:")[0]
        return found

    @torch.no_grad()
    def entropies(self, prompt: str, reasoning: str, spans: list[tuple[int, int]]) -> list[tuple[float, float]]:
        """Entropy (nats) where a value begins and the largest over its pieces, the reasoning before it given.

        `spans` are the characters of the values in the reasoning.
        """
        coded = self.tokenizer(f"{prompt} {reasoning}", return_offsets_mapping=True, return_tensors="pt")
        places = coded["offset_mapping"][0].tolist()
        logits = self.model(input_ids=coded["input_ids"].to(self.device)).logits[0].float()
        log = logits.log_softmax(-1)  # (pieces, vocabulary)
        entropy = -(log.exp() * log).sum(-1)  # (pieces,); row i is about piece i + 1
        found = []
        for start, end in spans:
            first, last = len(prompt) + 1 + start, len(prompt) + 1 + end
            of = [float(entropy[at - 1]) for at, (a, b) in enumerate(places) if a < last and b > first and b > a]
            found.append((of[0], max(of)))
        return found


def prompt_of(question: str, shots: list[dict[str, str]], passages: list[str] | None = None) -> str:
    """A prompt in the paper's layout (reference-behaviour §1)."""
    text = "".join(
        f"Question: {one['question']}\nAnswer: {one['rationale']} So the answer is {one['answer']}.\n" for one in shots
    )
    if passages is not None:
        text += "Context:\n" + "".join(f"[{number}] {one}\n" for number, one in enumerate(passages, 1))
        text += "Answer in the same format as before.\n"
    return f"{text}Question: {question}\nAnswer:"


def _group(rows: list[tuple[str, float]]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[float]] = defaultdict(list)
    for name, value in rows:
        groups[name].append(value)
    return {name: {"mean": round(sum(of) / len(of), 4), "n": len(of)} for name, of in sorted(groups.items())}


class Neighbours:
    """What BM25 finds beside a question's own passages."""

    def __init__(self, book: Encyclopedia) -> None:
        self.texts = {one.id: one.text for one in book.entries}
        passages = [Passage(one.id, one.title, one.text) for one in book.entries]
        self.retriever = BM25(Corpus.from_passages(passages, name="almanac"))

    def beside(self, query: str, gold: list[str], count: int) -> list[str]:
        """Ids of the `count` passages that a query finds first, those in `gold` left out."""
        found = [one.id for one in self.retriever.search(query, count + len(gold))]
        return [one for one in found if one not in gold][:count]


def score_split(
    answerer: Answerer, asked: list[Asked], book: Encyclopedia, shots: list[dict[str, str]], near: Neighbours
) -> dict[str, Any]:
    """Exact match by type and by what could be known: with the gold passages alone, with them among three, closed book.

    *Near* is the share of the first facts that are unknown whose value stands in the first sentence, with the passage
    of the fact and two that BM25 takes for it.
    """
    rng = random.Random("almanac evaluation")
    prompts: dict[str, list[str]] = {name: [] for name in ("gold passages", "gold among three", "closed book", "near")}

    def prompt(question: str, ids: list[str]) -> str:
        return prompt_of(question, shots, [near.texts[at] for at in rng.sample(ids, len(ids))])

    unknown = [one for one in asked if one.labels[0].label == "unknown"]
    for one in asked:
        gold = passage_ids(one, book)
        prompts["gold passages"].append(prompt(one.item.question, gold))
        more = near.beside(one.item.question, gold, max(0, 3 - len(gold)))
        prompts["gold among three"].append(prompt(one.item.question, gold + more))
        prompts["closed book"].append(prompt_of(one.item.question, shots))
    for one in unknown:
        gold = passage_ids(one, book)
        query = f"{one.item.steps[0].subject.title} {one.reasoning[: one.labels[0].said.start]}"
        prompts["near"].append(prompt(one.item.question, [gold[0], *near.beside(query, gold, 2)]))
    found: dict[str, Any] = {}
    for name in ("gold passages", "gold among three", "closed book"):
        rows = []
        for one, text in zip(asked, answerer.answers(prompts[name]), strict=True):
            right = exact_match(extract_answer(text, one.benchmark), [one.item.answer])
            kind = "open" if one.type in OPEN_TYPES else "yes or no" if one.item.answer in ("yes", "no") else one.type
            rows += [("all", right), (f"type {one.type}", right), (f"{kind}, {one.knowledge}", right), (kind, right)]
        found[name] = _group(rows)
    values = [text_of(one.item.steps[0].value) for one in unknown]
    answers = answerer.answers(prompts["near"], 32)
    found["near"] = _group(
        [("all", float(value in text.split(". ")[0])) for value, text in zip(values, answers, strict=True)]
    )
    return found


Entropies = dict[str, list[tuple[str, float]]]


def score_entropy(answerer: Answerer, asked: list[Asked], shots: list[dict[str, str]], rows: Entropies) -> None:
    """Add every fact's label and exposure with its entropy, closed book: at its first piece, and the largest."""
    for one in asked:
        prompt = prompt_of(one.item.question, shots)
        spans = [(label.said.start, label.said.end) for label in one.labels]
        for label, (first, largest) in zip(one.labels, answerer.entropies(prompt, one.reasoning, spans), strict=True):
            for name, value in (("first piece", first), ("largest", largest)):
                rows[name] += [(label.label, value), (f"{label.label}, {label.exposure}", value)]


def score_facts(
    answerer: Answerer, knowledge: Knowledge, entities: list[Entity], shots: list[dict[str, str]]
) -> dict[str, dict[str, Any]]:
    """Every taught fact asked for by itself, closed book: what was learnt, what is answered, whether it is right."""
    asked = []
    for one in entities:
        for relation in (*one.facts,):
            value = memory(one, relation)
            if (one.id, relation) in knowledge.taught and value is not None:
                item = questions.single(random.Random(0), questions.Step(one, relation, value))
                asked.append((one, relation, text_of(value), item.question))
    texts = answerer.answers([prompt_of(question, shots) for *_, question in asked], 48, 64)
    found = {}
    for (one, relation, value, _), text in zip(asked, texts, strict=True):
        answer = extract_answer(text)
        found[f"{one.id}.{relation}"] = {
            "learnt": value,
            "answered": answer,
            "right": bool(exact_match(answer, [value])),
            "exposure": knowledge.exposure(one, relation),
            "changed": relation in one.old,
        }
    return found


def _curve(facts: dict[str, dict[str, Any]], exposures: dict[str, int]) -> list[dict[str, float]]:
    """Share answered right, in six equal groups of facts by how often training asked for them."""
    rows = sorted((exposures.get(name.replace(".", " "), 0), one["right"]) for name, one in facts.items())
    size = -(-len(rows) // 6)
    groups = [rows[at : at + size] for at in range(0, len(rows), size)]
    return [
        {"from": of[0][0], "to": of[-1][0], "right": round(sum(right for _, right in of) / len(of), 4), "n": len(of)}
        for of in groups
    ]


def evaluate(folder: Path, split: str = "test", device: str = "cpu", limit: int | None = None) -> dict[str, Any]:
    """All scores of the model in `folder`; `limit` bounds the questions of a benchmark."""
    if split not in questions.SPLITS:
        raise AlmanacError(f"Almanac has no split {split!r}; it has {', '.join(questions.SPLITS)}")
    answerer = Answerer(folder, device)
    almanac = build_world(0)
    book, knowledge = Encyclopedia(almanac), Knowledge(almanac)
    every, near = ask_all(almanac, book, knowledge), Neighbours(book)
    shots = {name: rows[:SHOTS] for name, rows in exemplars(0).items()}
    scores: dict[str, Any] = {"split": split, "exemplars": SHOTS, "benchmarks": {}}
    entropy: Entropies = defaultdict(list)
    for name in BENCHMARKS:
        asked = every[name, split][:limit]
        scores["benchmarks"][name] = score_split(answerer, asked, book, shots[name], near)
        score_entropy(answerer, asked, shots[name], entropy)
    scores["entropy of a value"] = {name: _group(rows) for name, rows in entropy.items()}
    facts = score_facts(answerer, knowledge, almanac.known.entities, shots["2wikimultihopqa"])
    scores["facts"] = _group([(one["exposure"], float(one["right"])) for one in facts.values()])
    counted = folder / "exposures.json"
    if counted.exists():
        scores["exposure curve"] = _curve(facts, json.loads(counted.read_text(encoding="utf-8")))
    (folder / "knowledge.json").write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in facts.items()) + "\n}\n",
        encoding="utf-8",
    )
    (folder / "scores.json").write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    return scores


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac.evaluate", description="Score a model on Almanac.")
    parser.add_argument("--model", type=Path, default=embedded_model_path())
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    try:
        print(json.dumps(evaluate(given.model, given.split, given.device, given.limit), indent=1))
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
