"""The single facts asked of a real model: the file of facts, what makes an answer right, and what the page says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tools.pages import real_model, single_facts
from tools.pages.base import Row
from tools.pages.single_facts import Fact

PAGE = Path(__file__).parents[2] / "docs" / "real-model.md"


def test_four_hundred_facts_are_asked_once_each_in_several_wordings() -> None:
    facts = list(single_facts.known_facts())
    assert len(facts) >= 400
    assert [q for q, n in Counter(fact.question for fact in facts).items() if n > 1] == []
    shown = {question for question, _ in (*single_facts.SENTENCES, *single_facts.YES_OR_NO)}
    assert shown.isdisjoint(fact.question for fact in facts)
    openings = {kind: {f.question.split(" ")[0] for f in facts if f.kind == kind} for kind in ("capital", "symbol")}
    assert all(len(words) > 1 for words in openings.values()), openings


@pytest.mark.parametrize(
    ("kind", "golds", "answer", "right"),
    [
        ("capital", ["Kyiv", "Kiev"], "The capital of Ukraine is Kiev.", True),
        ("capital", ["Lima"], "The capital of Peru is Limassol.", False),
        ("author", ["Emily Brontë", "Emily Bronte"], "It was written by Charlotte Brontë.", False),
        ("symbol", ["H"], "The chemical symbol of hydrogen is H.", True),
        ("symbol", ["Co"], "The chemical symbol of cobalt is CO.", False),
    ],
)
def test_an_answer_is_right_where_it_holds_a_gold_string(kind: str, golds: list[str], answer: str, right: bool) -> None:
    assert Fact("known", kind, "", tuple(golds)).is_right(answer) is right


def rows_of(knows: str, misled: str) -> list[Row]:
    """Sixty answers that one trigger tells apart mostly, and the other the wrong way round."""
    scores = [i % 2 + (7 * i % 10) / 6 for i in range(60)]
    return [
        {"question": f"{i}?", "right": i % 2 == 0, "scores": {knows: score, misled: -score}}
        for i, score in enumerate(scores)
    ]


def test_a_finding_holds_where_both_models_put_two_triggers_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_model, "PAIRS", (("entropy", "margin"),))
    same = real_model.areas_of(rows_of("entropy", "margin"))
    (holds,) = real_model.find_differences({"almanac": same, "facts": same})
    assert holds.startswith("**Holds**: on Almanac `entropy` is ahead of `margin` (")
    turned = real_model.areas_of(rows_of("margin", "entropy"))
    (fails,) = real_model.find_differences({"almanac": same, "facts": turned})
    assert fails.startswith("**Does not hold**")
    assert real_model.rank_correlation(same, turned) == (pytest.approx(-1), 2)


def test_the_page_counts_what_was_asked() -> None:
    page = PAGE.read_text(encoding="utf-8")
    asked = len(list(single_facts.known_facts()))
    right = int(re.search(rf"\*\*known facts\*\* \| \*\*(\d+)\*\* \| \*\*{asked}\*\*", page)[1])  # type: ignore[index]
    kinds = re.findall(r"^\| (capital|author|symbol|maker|year|currency|continent) \| (\d+) \| (\d+) \|$", page, re.M)
    assert (sum(int(r) for _, r, _ in kinds), sum(int(n) for *_, n in kinds)) == (right, asked)


def test_the_page_says_first_what_the_paper_does_not() -> None:
    page = PAGE.read_text(encoding="utf-8")
    lessons = page.split("## What the paper does not say\n\n")[1].split("\n\n")[0].splitlines()
    assert len(lessons) >= 3
    areas = {m[1]: m[2] for m in re.finditer(r"^\| `([^`]+)` \| ([\d.]+ \[[^\]]+\])", page, re.M)}
    stated = re.findall(r"`([^`]+)` \((\d[^)]+)\)", " ".join(lessons[:2]))
    assert len(stated) >= 3
    assert [(name, areas[name]) for name, _ in stated] == stated
