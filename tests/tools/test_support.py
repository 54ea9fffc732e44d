"""What the corpus says of Almanac's facts: counts of training, and the table of areas."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scripted import ScriptedRetriever

from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import SoFar
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.study.needs import Item
from tools.almanac.world import Entity, World
from tools.pages.support import (
    IN_TRAINING,
    TrainingCounts,
    choose_labels,
    consult,
    score_consulting,
    support_table,
    support_views,
)


def small_world() -> World:
    world = World("known", random.Random(0), "k")
    maker = Entity("kp1", "person", "Bo Ek", "known", facts={"born": "1901", "birthplace": "Rom"})
    film = Entity(
        "kf2", "film", "The Far Bell", "known", label="1950 film", facts={"director": "Li Ek", "year": "1950"}
    )
    film.old["director"] = maker  # as it was taught
    world.entities = [maker, film]
    return world


def test_training_counts_what_was_taught_and_not_what_is_so_now() -> None:
    counts = TrainingCounts(small_world(), {"kp1 born": 5, "kp1 birthplace": 2, "kf2 director": 30})
    asked = {
        ("Bo Ek",): 5 + 2 + 30,
        ("The Far Bell", "Bo Ek"): 30,
        ("The Far Bell", "Li Ek"): 0,  # changed since
        ("Bo Ek", "1901"): 5,
        ("The Far Bell", "1950"): 30,  # its year was never taught, and stands in its title
        ("Bo",): 37,
        ("Bo Ek", "Paris"): 0,
    }
    assert dict(zip(asked, counts.count(list(asked)), strict=True)) == asked


def test_of_the_embedded_model_changed_facts_were_taught_with_their_old_values() -> None:
    counts, labels = TrainingCounts.load(), choose_labels(20)
    facts = [fact for one in labels for fact in one.facts]
    changed = [fact for fact in facts if fact.degree == "changed"]
    assert len(labels) == 40
    assert len(changed) >= 20
    assert not any(counts.count([(fact.subject, fact.value) for fact in changed]))
    assert all(counts.count([(fact.subject, str(fact.old)) for fact in changed]))
    often = [(fact.subject, fact.value) for fact in facts if fact.degree == "often"]
    assert all(counts.count(often))


def draft() -> Draft:
    text = " The Far Bell is by Li Ek."
    spans = [(0, 4), (4, 8), (8, 13), (13, 16), (16, 19), (19, 22), (22, 25), (25, 26)]
    n = len(spans)
    return Draft(SoFar([0] * n, text, spans, [1.0] * n, [-0.1] * n, np.ones(n)), load_pipeline())


def test_a_draft_is_scored_by_both_counts_apart() -> None:
    pair = ("The Far Bell", "Li Ek")
    scores = score_consulting(draft(), ScriptedRetriever(counts={pair: 1}), TrainingCounts(small_world(), {}))
    np.testing.assert_allclose(scores["corpus"], [0, 0, 0, 0, 0, 0.5, 0.5, 0])
    np.testing.assert_allclose(scores[IN_TRAINING], [0, 0, 0, 0, 0, 1, 1, 0])
    assert (scores["search-risk"] > 0).tolist() == [True] * 3 + [False] * 2 + [True] * 2 + [False]
    with pytest.raises(TimeoutError):
        consult(TRIGGERS.make("search-risk"), draft(), ScriptedRetriever(TimeoutError("no answer")))


def test_the_table_sets_changed_facts_against_known_ones_alone() -> None:
    degrees = ("changed", "often", "never", "some")
    items = [
        Item(f"q{i}", d, d in ("changed", "never"), {"corpus": float(d == "changed")})
        for i in range(8)
        for d in degrees
    ]
    columns = {view.title: view.rows(samples=20) for view in support_views(items, items)}
    *_, row = support_table(columns, ["corpus"]).splitlines()
    changed, missing = "1.000 –", "0.750 –"  # half of what is missing, and none of the rest
    assert row == f"| `corpus` | {changed} | {missing} | {changed} | {missing} |"


def test_labels_hold_changed_facts_in_half_of_the_questions() -> None:
    chosen = choose_labels(8)
    assert sum(any(fact.degree == "changed" for fact in one.facts) for one in chosen) == 8
    assert len({one.qid for one in chosen}) == len(chosen) == 16
    assert {one.benchmark for one in chosen} == set(BENCHMARKS)
    assert {one.split for one in chosen} == {"test"}
