"""Every *when* with every *what*, in both variants: answered on scripted drafts, or refused by name."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from scripted import Say, drive

from dragin_lab.core.method import FORMULATORS, TRIGGERS, VARIANTS, method
from dragin_lab.core.method import senseless as senseless_parts
from dragin_lab.errors import SettingError

#: Those of the DRAGIN and FLARE papers; test_when_after.py has the later ones.
NAMES = ["never", "once", "every-n", "every-sentence", "probability", "rind", "search-call", "follow-up"]
QUESTION = "Who directed Ma?"
LOUD: dict[str, Any] = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}, "doubt": {"Bo": 0.9}}
ENDS = Say(" So the answer is Li. Then he")
DRAFT = Say(" It was far. It is by Bo Ek. He left", **LOUD)
ASKED = {
    "search-call": [Say(" It was far. It is by [Search(maker)] Bo"), Say(" Li. So the answer is Li. He")],
    "follow-up": [
        Say(" Yes.\nFollow up: Who is it?\nIntermediate answer: Bo"),
        Say(" It is Li.\nSo the final answer is: Li. He"),
    ],
}
SCRIPTS: dict[tuple[str, str], list[Say]] = {
    ("reference", "every-n"): [Say(" It was far."), Say(" So the answer is")],
    ("paper", "every-n"): [Say(" It was far."), Say(" So the answer is"), Say(" Li. Then he")],
    ("reference", "probability"): [DRAFT, ENDS],
    ("paper", "probability"): [Say(" It is by Bo Ek. He left", **LOUD), Say(" It is by Li. He"), ENDS],
    ("reference", "rind"): [DRAFT, ENDS],
    ("paper", "rind"): [DRAFT, Say(" Li. So the answer is Li. He")],
}
for _variant in VARIANTS:
    SCRIPTS |= {(_variant, when): [ENDS] for when in ("never", "once")}
    SCRIPTS |= {(_variant, when): script for when, script in ASKED.items()}
    SCRIPTS[_variant, "every-sentence"] = [Say(" It was far. Then he"), ENDS]

#: What a model that asks by itself is searched for with another *what*: (when, variant) -> what -> query.
QUERIES = {
    ("search-call", "paper"): {
        "question": QUESTION,
        "last-n": "is by",
        "last-sentence": "It is by",
        "confident-sentence": "It is by",
        "qfs": "directed far.",
        "full-context": f"{QUESTION} It was far. It is by",
        "current": "It is by",
        "current-without-hits": "It is",
        "term": "maker",
    },
    ("search-call", "reference"): {
        "question": QUESTION,
        "last-n": "▁is ▁by",
        "last-sentence": "It is by",
        "confident-sentence": "It is by",
        "qfs": "directed far.",
        "full-context": f"{QUESTION} It was far. It is by",
        "current": "It is by",
        "current-without-hits": "It is ",
        "term": "maker",
    },
    ("follow-up", "paper"): {
        "question": QUESTION,
        "last-n": "it?",
        "last-sentence": "Follow up: Who is it?",
        "confident-sentence": "Who is it?",
        "qfs": "Who directed",
        "full-context": f"{QUESTION} Yes.\nFollow up: Who is it?",
        "current": "Who is it?",
        "current-without-hits": "Who is it",
        "term": "Who is it?",
    },
    ("follow-up", "reference"): {
        "question": QUESTION,
        "last-n": "▁it ?",
        "last-sentence": "Who is it?",
        "confident-sentence": "Who is it?",
        "qfs": "directed Ma?",
        "full-context": f"{QUESTION} Yes.\nFollow up: Who is it?",
        "current": "Who is it?",
        "current-without-hits": "Who is ",
        "term": "Who is it?",
    },
}


def senseless(when: str, what: str) -> str:
    return senseless_parts(TRIGGERS.named(when), FORMULATORS.named(what))


@pytest.mark.parametrize(("variant", "when", "what"), list(product(VARIANTS, NAMES, FORMULATORS)))
def test_every_pair_answers_or_is_refused(variant: str, when: str, what: str) -> None:
    settings: dict[str, Any] = {"variant": variant, "when": when, "what": what, "top_n": 2, "n": 4}
    if message := senseless(when, what):
        with pytest.raises(SettingError) as caught:
            method("dragin", **settings)
        assert str(caught.value) == message
        assert message.startswith(f"when={when!r} with what={what!r} makes no sense: ")
        assert "use " in message
        return
    looks = {"directed": 5.0, "far": 4.0}
    driven = drive(method("dragin", **settings), *SCRIPTS[variant, when], question=QUESTION, looks=looks)
    assert driven.trace.ended == "answered"
    assert "Li" in driven.trace.answer or (variant, when) == ("reference", "every-n")  # whose chunk ends before it
    assert bool(driven.queries) == (when != "never")
    assert all(query.strip() for query in driven.queries)
    if (when, variant) in QUERIES:
        assert driven.queries == [QUERIES[when, variant][what.removesuffix("-etc")]]  # which ranks as qfs does here
        query = driven.trace.steps[0].query
        assert query is not None
        stands_in = "the last token stands in for the hits that this trigger does not give"
        assert query.note == (stands_in if what in ("qfs", "qfs-etc", "current-without-hits") else "")


def test_what_is_refused() -> None:
    refused = {(when, what) for when, what in product(NAMES, FORMULATORS) if senseless(when, what)}
    before = {(when, what) for when in ("never", "once") for what in FORMULATORS if what != "question"}
    term = {(when, "term") for when in NAMES if when not in ("search-call", "follow-up")}
    assert refused == before | term
    assert "only with when='search-call', 'follow-up', 'search-tag' or a dl.Call; use" in senseless("rind", "term")
