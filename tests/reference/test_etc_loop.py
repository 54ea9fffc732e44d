"""Episodes of ETC's released code on scripted answers."""

from __future__ import annotations

import pytest
from scripted import Say, drive

from dragin_lab.catalog.methods import method

QUESTION = "Who directed Ma?"
QUERIES = {
    "question": QUESTION,
    "last-sentence": "It is a far land by",
    "full-context": f"{QUESTION} It is a far land by",
    "current": "▁It ▁is ▁a ▁far ▁land ▁by ▁Bo ▁Ek .",
    "current-without-hits": "▁It ▁is ▁a ▁far ▁land ▁by  ▁Ek .",
    "last-n": f"{QUESTION} It is a far land by",
    "confident-sentence": "It is a far land by Bo Ek.",
    "qfs-etc": "directed Ma far land",
}


@pytest.mark.parametrize("what", QUERIES)
def test_the_answer_goes_on_from_the_word_that_fires(what: str) -> None:
    driven = drive(
        method("etc", variant="reference", what=what, threshold=0.5),
        Say(" It is a far land by Bo Ek.", entropy={"far": 0.5, "land": 0.7, "Bo": 9.0}),
        Say(" Li. So the answer is Li. He"),
        Say(" So the answer is Li."),
        question=QUESTION,
    )
    first = driven.trace.steps[0]
    assert first.decision is not None
    assert first.decision.reason.startswith("the trend at '▁Bo' is ")
    assert driven.lm.prompts[0] == f"\nQuestion:{QUESTION}\nAnswer:"
    assert driven.lm.prompts[1].endswith(
        f"Answer in the same format as before.\n\nQuestion:{QUESTION}\nAnswer:It is a far land by"
    )
    assert driven.trace.text == "It is a far land by Li. So the answer is Li."
    assert driven.queries == [QUERIES[what]]
    assert (driven.trace.answer, driven.trace.ended) == ("Li", "answered")


def test_an_empty_draft_is_answered() -> None:
    driven = drive(method("etc", variant="reference"), Say(""), Say(" Li"))
    assert driven.trace.ended == "answered"
