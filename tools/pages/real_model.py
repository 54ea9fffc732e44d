"""Does a trigger know, on a real model? Single facts asked of SmolLM2 without passages, and docs/real-model.md.

    python -m tools.pages.real_model               ask everything, then write the page; resumed where it was stopped
    python -m tools.pages.real_model --part known  ask one part only: known, 2wiki, strategyqa or almanac

Each question has one fact for its answer. The model answers in a sentence, greedily, and the answer is right where it
holds a gold string. A trigger's score of an answer is its highest over the answer's tokens, which is what it would hold
against its threshold. Rows are kept in ``runs/real``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import spacy

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.core.answers import normalize_answer
from dragin_lab.core.episode import Prompt, Write
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.stops import NextExample
from dragin_lab.data import datasets
from dragin_lab.study import needs
from tools import real
from tools.pages.base import HERE, RUNS, Row, kept_rows, parser, say

FACTS = HERE / "known_facts.json"
OUTPUT = RUNS / "real"
NEW_TOKENS = 32
ALMANAC_LABELS = 50  # of each of its four benchmarks

#: How the model is shown to answer. None of these facts is asked.
SENTENCES = (
    ("Who wrote The Secret Garden?", "The Secret Garden was written by Frances Hodgson Burnett."),
    ("What is the chemical symbol of osmium?", "The chemical symbol of osmium is Os."),
    ("In which year was the Suez Canal opened?", "The Suez Canal was opened in 1869."),
    ("Which river flows through Vienna?", "The river that flows through Vienna is the Danube."),
)
YES_OR_NO = (
    ("Can penguins fly?", "No."),
    ("Is the Sahara larger than Belgium?", "Yes."),
    ("Could Mozart have met Napoleon's parents?", "Yes."),
    ("Would a vegan eat an omelette?", "No."),
)
#: How 2WikiMultihopQA's relations are asked, with the subject in the braces.
RELATIONS = {
    "director": "Who directed the film {}?",
    "date of birth": "When was {} born?",
    "date of death": "When did {} die?",
    "father": "Who was the father of {}?",
    "mother": "Who was the mother of {}?",
    "spouse": "Who was married to {}?",
    "place of birth": "Where was {} born?",
    "place of death": "Where did {} die?",
    "place of burial": "Where was {} buried?",
    "country of citizenship": "Of which country was {} a citizen?",
    "country of origin": "From which country is {}?",
    "country": "In which country is {}?",
    "publication date": "In which year was {} published?",
    "inception": "In which year was {} founded?",
    "educated at": "Where was {} educated?",
    "performer": "Who performed {}?",
    "composer": "Who composed the music of {}?",
    "employer": "Who employed {}?",
    "has part": "Who was a member of {}?",
    "cause of death": "What did {} die of?",
    "presenter": "Who presented {}?",
    "child": "Who was a child of {}?",
    "award received": "Which award did {} receive?",
}
_YEAR = re.compile(r"\b\d{4}\b")


@dataclass(frozen=True)
class Fact:
    """A question whose answer is one fact, and the strings that make an answer right."""

    part: str
    kind: str
    question: str
    golds: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """Whether the answer holds a gold string: whole words, and letters as they are written for a symbol."""
        if self.kind == "symbol":
            return any(re.search(rf"\b{gold}\b", answer) for gold in self.golds)
        text = f" {normalize_answer(answer)} "
        return any(f" {normalize_answer(gold)} " in text for gold in self.golds)


def known_facts() -> Iterator[Fact]:
    """Widely known facts, in several wordings."""
    for kind, group in json.loads(FACTS.read_text(encoding="utf-8")).items():
        wordings = group["questions"]
        for number, (subject, golds) in enumerate(group["facts"].items()):
            yield Fact("known", kind, wordings[number % len(wordings)].format(subject), tuple(golds))


def wiki_facts() -> Iterator[Fact]:
    """The evidence triples of 2WikiMultihopQA's questions; a date's year alone is enough."""
    path = datasets.data_folder() / "2wikimultihopqa" / "dev.json"
    for row in json.loads(path.read_text(encoding="utf-8")):
        for subject, relation, value in row["evidences"]:
            golds = (value, *_YEAR.findall(value)) if relation.startswith("date") else (value,)
            yield Fact("2wiki", relation, RELATIONS[relation].format(subject), golds)


def strategy_facts() -> Iterator[Fact]:
    """StrategyQA's questions, to be answered by yes or no."""
    for question in datasets.load("strategyqa"):
        yield Fact("strategyqa", "yes or no", question.text, tuple(question.golds))


PARTS = {"known": known_facts, "2wiki": wiki_facts, "strategyqa": strategy_facts}


class Asked:
    """SmolLM2 and the English pipeline, asking and scoring."""

    def __init__(self) -> None:
        self.lm = dl.LanguageModel.load(real.language_model())
        self.pipeline = load_pipeline(spacy.load(real.ENGLISH.folder))

    def ask(self, fact: Fact) -> Row:
        """One answer: its text, whether it is right, and every trigger's highest score over its tokens."""
        shown = YES_OR_NO if fact.part == "strategyqa" else SENTENCES
        examples = "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in shown)
        prompt = Prompt(f"{examples}Question: {fact.question}\nAnswer:", {})
        continuation = self.lm.generate(Write(prompt, NEW_TOKENS, NextExample(("\n",))))
        line = continuation.text.split("\n")[0]
        first = next(iter(self.pipeline.spans(line)), (0, len(line)))[1]
        tokens = needs.tokens_of(continuation, 0, first)
        ids = continuation.ids.tolist()
        decoded = [self.lm.tokenizer.decode([i], special=True) for i in ids]
        attention = self.lm.attend(ids)  # (h, n, n)
        scores = needs.score_tokens(continuation, attention, self.lm.tokenizer.marker, decoded, self.pipeline)
        return {
            "kind": fact.kind,
            "question": fact.question,
            "golds": fact.golds,
            "answer": line[:first].strip(),
            "right": fact.is_right(line[:first]),
            "scores": {name: float(values[tokens].max(initial=0)) for name, values in scores.items()},
        }


def almanac_rows() -> list[Row]:
    """The facts of Almanac's gold reasoning on its own model, scored as docs/almanac.md does."""
    lm, pipeline, rows = dl.LanguageModel.load(None), load_pipeline(), []
    for name in datasets.BENCHMARKS:
        for labelled in almanac.labels(name, "test")[:ALMANAC_LABELS]:
            facts, _ = needs.forced_items(lm, labelled, datasets.template(f"almanac/{name}"), pipeline)
            rows += [{"question": i.qid, "right": not i.missing, "scores": dict(i.own)} for i in facts]
    return rows


def read_part(part: str, output: Path, limit: int | None = None) -> list[Row]:
    """The rows of a part, computed where they are not there yet."""
    if part == "almanac":
        path = output / "almanac.json"
        if not path.exists():
            path.write_text(json.dumps(almanac_rows()), encoding="utf-8")
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
        return rows
    asked = cache(Asked)

    def work(fact: Fact) -> Row:
        return asked().ask(fact)

    return kept_rows(output / f"{part}.jsonl", list(PARTS[part]())[:limit], work)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--part", choices=(*PARTS, "almanac"), help="compute one part only")
    options.add_argument("--limit", type=int, help="so many questions of each part")
    options.add_argument("--output", type=Path, default=OUTPUT)
    given = options.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    for part in [given.part] if given.part else [*PARTS, "almanac"]:
        rows = read_part(part, given.output, given.limit)
        say(f"{part}: {sum(row['right'] for row in rows)} of {len(rows)} right")


if __name__ == "__main__":
    main()
