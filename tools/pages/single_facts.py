"""Questions whose answer is one fact: widely known ones, 2WikiMultihopQA's evidence, StrategyQA's yes or no."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dragin_lab.core.answers import normalize_answer
from dragin_lab.data import datasets
from tools.pages.base import HERE

FACTS = HERE / "known_facts.json"

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
