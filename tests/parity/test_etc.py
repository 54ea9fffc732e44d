"""``etc`` in the reference variant answers what ETC's released code answered, case by case (README.md beside this)."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from test_parity import SETS, RecordedRetriever, language_model, tagged
from tokenizers.processors import TemplateProcessing

from dragin_lab.catalog.methods import method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.model.load import LanguageModel
from dragin_lab.reference.etc import compute_trends
from dragin_lab.run.lab import Lab

HERE = Path(__file__).parent / "etc"
TOLERANCE = 1e-4


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


CASES = lines("cases.jsonl")
EXPECTED = {row["id"]: row for row in lines("expected.jsonl")}


@functools.cache
def model(name: str) -> LanguageModel:
    """A set's model; the released code needs a tokenizer that writes BOS, which the first set's does not."""
    plain = language_model(name)
    if name != "almanac":
        return plain
    lm = LanguageModel.load(plain.model.name_or_path, dtype="float32")
    start = [("<s>", lm.tokenizer.hf.convert_tokens_to_ids("<s>"))]
    lm.tokenizer.hf.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=start)
    return lm


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_same_as_released_code(case: dict) -> None:
    expected, settings = EXPECTED[case["id"]], case["settings"]
    asked = method(
        "etc",
        variant="reference",
        nlp=tagged(),
        threshold=settings["hallucination_threshold"],
        top_n=settings["retrieve_keep_top_k"],
        absolute=settings["thres_abs"],
        max_new_tokens=settings["generate_max_length"],
        top_k=settings["retrieve_topk"],
    )
    template = PromptTemplate([Exemplar(**e) for e in SETS[case["set"]]["exemplars"]])
    lab = Lab(model(case["set"]), retriever=RecordedRetriever(case["set"]), exemplars=template)
    trace = lab.ask(case["question"], asked)
    judged = [step for step in trace.steps if len(step.words)]  # the released code leaves an empty draft out
    for number, (step, theirs) in enumerate(zip(judged, expected["rounds"], strict=True)):
        assert step.draft is not None
        assert step.decision is not None
        assert step.draft.text == theirs["draft"]
        assert list(step.words.text) == theirs["words"]
        assert (~step.words.stop).astype(int).tolist() == theirs["content"]
        np.testing.assert_allclose(step.words.entropy, theirs["entropy"], atol=TOLERANCE)
        np.testing.assert_allclose(step.words.attention, theirs["attention"], atol=TOLERANCE, err_msg=f"round {number}")
        assert step.decision.retrieve == theirs["retrieve"]
        assert (int(step.words.hit.argmax()) if step.words.hit.any() else None) == theirs["word"]
    assert [s.query.text for s in trace.steps if s.query] == expected["queries"]
    assert [[p.id for p in s.passages] for s in trace.steps if s.query] == expected["passages"]
    assert trace.text == expected["text"]
    assert trace.counters["retrievals"] == expected["retrievals"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_trends_follow_from_the_recorded_entropies(case: dict) -> None:
    for theirs in EXPECTED[case["id"]]["rounds"]:
        found = compute_trends(np.array(theirs["entropy"]), np.array(theirs["content"], dtype=bool))
        np.testing.assert_allclose(found, theirs["trend"], atol=5e-6)
