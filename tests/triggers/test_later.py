"""The triggers after DRAGIN, by drafts computed by hand and in episodes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import spacy
from scripted import Say, drive

import dragin_lab as dl
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Draft
from dragin_lab.triggers.etc import compute_trends

QUESTION = "Who directed Ma?"
AFTER = ("entropy", "margin", "random", "prefix-margin", "entropy-trend", "max-probability")
TEXT = " It is by Bo Ek. He left"


def ruled() -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Bo Ek"}])  # type: ignore[attr-defined]
    return nlp


def draft(nlp: Any = None, **values: Any) -> Draft:
    """It / is / by / Bo / Ek / . / He / left: 8 tokens of one word each, but for the full stop."""
    spans = [(0, 3), (3, 6), (6, 9), (9, 12), (12, 15), (15, 16), (16, 19), (19, 24)]
    n = len(spans)
    measured: dict[str, Any] = {
        "entropy": [1.0] * n,
        "logprob": [-0.1] * n,
        "received": np.full(n, 0.5),
    }
    made = Draft(np.arange(n), TEXT, np.array(spans), **measured | values)
    return made.read_by(load_pipeline(nlp), QUESTION)


def test_one_number_per_token() -> None:
    pairs = np.array([[0.8, 0.2]] * 7 + [[0.5, 0.5]])
    seen = draft(alternative_probs=pairs, entropy=[0.5] * 8)
    np.testing.assert_allclose(TRIGGERS.make("entropy").score(seen), [0.5] * 8)
    np.testing.assert_allclose(TRIGGERS.make("margin").score(seen), [0.25] * 7 + [1.0])
    np.testing.assert_allclose(TRIGGERS.make("margin(beta=2)").score(seen), [0.5] * 7 + [1.0])
    assert TRIGGERS.make("max-probability").score_unit(seen) == pytest.approx(0.8)
    with pytest.raises(SettingError, match="two alternatives; load the model with alternatives=2"):
        TRIGGERS.make("margin").check_score(draft(alternative_probs=pairs[:, :1]))


def test_random_words_are_the_same_however_far_the_draft_went() -> None:
    whole = TRIGGERS.make("random").score(draft())
    spans, n = [(0, 3), (3, 6), (6, 9)], 3
    part = Draft(np.zeros(n), TEXT[:9], np.array(spans)).read_by(load_pipeline(), QUESTION)
    np.testing.assert_array_equal(TRIGGERS.make("random").score(part), whole[:3])
    assert ((whole >= 0) & (whole < 1)).all()
    assert not np.array_equal(TRIGGERS.make("random(seed=1)").score(draft()), whole)


def test_entities_by_hand() -> None:
    logprob = np.log([0.9, 0.9, 0.9, 0.5, 0.2, 0.9, 0.9, 0.9]).tolist()
    seen = draft(ruled(), logprob=logprob)
    expected = {"avg": 1 - 0.1**0.5, "max": 0.5, "min": 0.8, "first": 0.5}
    for solver, doubt in expected.items():
        trigger = TRIGGERS.make(f"entity(entity_solver='{solver}')")
        np.testing.assert_allclose(trigger.score(seen), [0, 0, 0, doubt, doubt, 0, 0, 0])
        assert trigger.score_unit(seen) == pytest.approx(doubt)
        assert trigger.judge(seen).fires == (doubt > 0.5)
    spans = [(0, 3), (3, 6)]
    made = Draft(np.arange(2), TEXT[:6], np.array(spans), logprob=np.full(2, -9.0))
    without = made.read_by(load_pipeline(ruled()))
    assert TRIGGERS.make("entity").score_unit(without) == -np.inf
    assert not TRIGGERS.make("entity").judge(without).fires
    with pytest.raises(SettingError, match=r"finds no entities; give nlp="):
        TRIGGERS.make("entity").check_score(draft())


def test_trends_by_hand() -> None:
    # x = 3, -5; E = 3, -1; w_2 = 4 / (4 + 4)
    np.testing.assert_allclose(
        compute_trends(np.array([0.0, 0.0, 3.0, 1.0])), [0, 0, 3, 0.5 * -5 + 0.5 * 3]
    )
    np.testing.assert_array_equal(compute_trends(np.zeros(5)), np.zeros(5))
    assert len(compute_trends(np.zeros(1))) == 1


@pytest.mark.parametrize("name", AFTER)
def test_they_answer_and_can_be_sent(name: str) -> None:
    method = dl.method(when=name, what="question", threshold=1e9)
    script = [Say(" It is Bo. So the answer is Bo.\nHe", entropy={"Bo": 9.0})]
    if method.trigger.span == "sentence":  # which looks one sentence ahead
        script = [Say(" It is Bo. So the"), Say(" So the answer is Bo.\nHe")]
    found = drive(method, *script)
    assert found.trace.answer.startswith("Bo")
    assert found.trace.retrievals_count == 0
    assert pickle.loads(pickle.dumps(method.trigger)) == method.trigger
    assert TRIGGERS.named(name).source


def test_targ_decides_once() -> None:
    method = dl.method("targ", first=3, threshold=0.2)
    fires = drive(
        method,
        Say(" It is by Bo", doubt={"is": 0.5, "by": 0.5}),
        Say(" It is Li. So the answer is Li.\nHe", doubt={"Li": 0.9}),
        question=QUESTION,
    )
    step = fires.trace.steps[0]
    assert (len(step.draft), fires.queries, fires.trace.answer) == (3, [QUESTION], "Li")
    assert (len(fires.trace.steps), step.discarded) == (1, step.draft.text)
    assert "First passage." in fires.lm.prompts[1]
    quiet = drive(method, Say(" It is by"), Say(" Bo. So the answer is Bo.\nHe"), question=QUESTION)
    assert (quiet.queries, quiet.trace.answer, len(quiet.trace.steps)) == ([], "Bo", 2)
    assert quiet.trace.text.endswith("It is by Bo. So the answer is Bo.")


def test_entity_rag_asks_with_what_is_not_in_doubt() -> None:
    method = dl.method("entity-rag", nlp=ruled(), threshold=0.4)
    drafts = [
        Say(" It is by Bo Ek. He left", doubt={"Bo": 0.9, "Ek": 0.5}),
        Say(" It is by Li. He"),
    ]
    found = drive(method, *drafts, Say(" So the answer is Li."))
    assert [" ".join(query.split()) for query in found.queries] == ["It is by"]
    assert found.trace.answer == "Li"
