"""Every trigger with every query formulator, in both variants: answered on scripted drafts, or refused by name."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from scripted import Say, drive

from dragin_lab.catalog.methods import find_conflict, method, tables
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.errors import SettingError
from dragin_lab.reference.rules import FORMULATIONS

#: Those of the DRAGIN paper, which its code has too, and of the FLARE paper; tests/triggers has the later ones.
RELEASED = ["never", "once", "every-n", "every-sentence", "probability", "rind"]
NAMES = [*RELEASED, "search-call", "follow-up"]
PAIRS = [("paper", *pair) for pair in product(NAMES, FORMULATORS)]
PAIRS += [("reference", *pair) for pair in product(RELEASED, FORMULATIONS)]
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
for _variant in ("paper", "reference"):
    SCRIPTS |= {(_variant, when): [ENDS] for when in ("never", "once")}
    SCRIPTS[_variant, "every-sentence"] = [Say(" It was far. Then he"), ENDS]
SCRIPTS |= {("paper", when): script for when, script in ASKED.items()}

#: What is searched for where the model asks by itself, by trigger and formulator.
QUERIES = {
    "search-call": {
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
    "follow-up": {
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
}


def conflict(variant: str, when: str, what: str) -> str:
    (_, triggers), (_, formulators) = tables(variant)
    return find_conflict(triggers.named(when), formulators.named(what))


@pytest.mark.parametrize(("variant", "when", "what"), PAIRS)
def test_every_pair_answers_or_is_refused(variant: str, when: str, what: str) -> None:
    settings: dict[str, Any] = {"variant": variant, "when": when, "what": what, "top_n": 2, "n": 4}
    if message := conflict(variant, when, what):
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
    if when in QUERIES:
        assert driven.queries == [QUERIES[when][what.removesuffix("-etc")]]  # which ranks as qfs does here
        query = driven.trace.steps[0].query
        assert query is not None
        stands_in = "the last token stands in for the hits that this trigger does not give"
        assert query.note == (stands_in if what in ("qfs", "qfs-etc", "current-without-hits") else "")


def test_what_is_refused() -> None:
    refused = {(when, what) for when, what in product(NAMES, FORMULATORS) if conflict("paper", when, what)}
    before = {(when, what) for when in ("never", "once") for what in FORMULATORS if what != "question"}
    term = {(when, "term") for when in NAMES if when not in ("search-call", "follow-up")}
    assert refused == before | term
    message = conflict("paper", "rind", "term")
    assert "only with when='search-call', 'follow-up', 'search-tag' or a dl.Call; use" in message
    refused = {pair for pair in product(RELEASED, FORMULATIONS) if conflict("reference", *pair)}
    assert refused == {(when, what) for when in ("never", "once") for what in FORMULATIONS if what != "question"}
    assert TRIGGERS.names()[: len(RELEASED)] == tuple(RELEASED)
