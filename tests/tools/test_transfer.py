"""A trigger fitted on one model and tested on another: labels of single facts, measures, and what the page says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import SoFar
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.study.needs import Item
from tools.pages import transfer
from tools.pages.transfer import ALMANAC, REAL, Answer, budget_table, caught, compare, find_value, halves, ranks
from tools.pages.triggers_sections import transfer_section

WORDS = (" The", " capital", " of", " Peru", " is", " Li", "mas", "sol", ".")


def draft(doubt: float = 0.5) -> Draft:
    """An answer whose value, the last word, is in doubt."""
    starts = np.cumsum([0, *map(len, WORDS)])
    offsets = list(zip(starts.tolist(), starts[1:].tolist(), strict=False))
    n = len(WORDS)
    logprob = [math.log1p(-doubt) if 5 <= t < 8 else -0.01 for t in range(n)]
    return Draft(
        SoFar(
            [0] * n,
            "".join(WORDS),
            offsets,
            [1.0] * n,
            logprob,
            np.ones(n),
            alternative_probs=np.tile([0.5, 0.2], (n, 1)),
        ),
        load_pipeline(),
    )


def answers(count: int) -> list[Answer]:
    """Every third answer is wrong, and its value is in doubt."""
    return [
        Answer(
            str(i), "What is the capital of Peru?", draft(0.6 if i % 3 == 0 else 0.1), i % 3 == 0, {"rind": i * 7 % 5}
        )
        for i in range(count)
    ]


def test_the_value_is_what_the_question_does_not_say() -> None:
    value = find_value(draft(), "What is the capital of Peru?")
    assert [word for word, own in zip(WORDS, value, strict=True) if own] == [" Li", "mas", "sol", "."]
    wrong, right = (answer.label() for answer in answers(2))
    assert wrong.missing.tolist() == value.tolist()
    assert not right.missing.any()


def test_every_set_of_features_is_fitted_and_finds_the_doubtful_values(tmp_path: Path) -> None:
    fit, test = halves(answers(60))
    fitted = transfer.fit_sets(REAL, [answer.label() for answer in fit], tmp_path / "fits")
    assert list(fitted) == list(transfer.SETS)
    assert fitted["default"].name == transfer.ELSEWHERE
    again = transfer.fit_sets(REAL, [], tmp_path / "fits")  # from their files
    assert {name: trigger.settings for name, trigger in again.items()} == {n: t.settings for n, t in fitted.items()}
    items = transfer.score_answers(test, fitted.values())
    assert compare(items, transfer.ELSEWHERE, "rind").clear
    for name in [trigger.name for trigger in fitted.values()]:
        del TRIGGERS._parts[name]


@pytest.mark.parametrize(("share", "part"), [(0.25, 0.5), (0.5, 1.0), (0.75, 1.0)])
def test_caught_is_the_part_of_the_missing_among_those_that_score_highest(share: float, part: float) -> None:
    missing = np.array([True, False, True, False])
    assert caught(np.array([4.0, 1.0, 3.0, 2.0]), missing, share) == part
    assert caught(np.zeros(4), missing, share) == pytest.approx(share)  # equal scores are chosen at random


def test_ranks_and_z_scores_forget_how_large_a_score_is() -> None:
    values = np.array([1.0, 3.0, 2.0])
    np.testing.assert_allclose(ranks(values), ranks(100 * values))
    np.testing.assert_allclose(transfer.z_scores(values), transfer.z_scores(100 * values))
    assert not transfer.z_scores(np.ones(3)).any()


@pytest.mark.parametrize(
    ("better", "verdict"), [(True, "on SmolLM2 and Almanac, without"), (False, "on neither model")]
)
def test_the_page_says_ahead_only_where_both_intervals_are_clear_of_0(better: bool, verdict: str) -> None:
    names = [transfer.name_of(model, features) for model in (ALMANAC, REAL) for features in transfer.SETS]
    rng = np.random.default_rng(0)
    items = []
    for i in range(80):
        noise = rng.normal(size=3)
        good = [name for name in names if better and name in ("fitted", transfer.ELSEWHERE)]
        own = dict.fromkeys(names, noise[0]) | dict.fromkeys(good, (i % 2) * 3.0 + noise[0])
        items.append(Item(str(i), "", i % 2 == 1, own | {"rind": (i % 2) + noise[1], "entropy": (i % 2) + noise[2]}))
    tests = [*transfer.run_tests(ALMANAC, REAL, items), *transfer.run_tests(REAL, ALMANAC, items)]
    assert verdict in transfer_section(tests, items)["verdict"]
    table, leads = budget_table(items, "fitted")
    assert len(table.splitlines()) == 2 + len(transfer.SHARES)
    assert len(leads) == 2 * len(transfer.SHARES)
