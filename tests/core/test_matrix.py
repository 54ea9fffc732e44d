"""Every trigger with every query formulator, in both variants: answered on scripted drafts, or
refused by name.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from scripted import Say, drive

from dragin_lab.catalog.by_name import TABLES, find_conflict, method
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.errors import SettingError

#: Those of the DRAGIN paper, which its code has too, and of the FLARE paper; tests/triggers has the
#: later ones.
FORMULATIONS = tuple(TABLES["reference"][1])
RELEASED = ["never", "once", "every-n", "every-sentence", "probability", "rind"]
NAMES = [*RELEASED, "search-call", "follow-up"]
PAIRS = [("paper", *pair) for pair in product(NAMES, FORMULATORS)]
PAIRS += [("reference", *pair) for pair in product(RELEASED, FORMULATIONS)]
QUESTION = "Who directed Ma?"
LOUD: dict[str, Any] = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}, "doubt": {"Bo": 0.9}}
ENDS = Say(" So the answer is Li.\nThen he")
DRAFT = Say(" It was far. It is by Bo Ek. He left", **LOUD)
ASKED = {
    "search-call": [
        Say(" It was far. It is by [Search(maker)] Bo"),
        Say(" Li. So the answer is Li.\nHe"),
    ],
    "follow-up": [
        Say(" Yes.\nFollow up: Who is it?\nIntermediate answer: Bo"),
        Say(" It is Li.\nSo the final answer is: Li.\nHe"),
    ],
}
SCRIPTS: dict[tuple[str, str], list[Say]] = {
    ("reference", "every-n"): [Say(" It was far."), Say(" So the answer is")],
    ("paper", "every-n"): [Say(" It was far."), Say(" So the answer is"), Say(" Li.\nThen he")],
    ("reference", "probability"): [DRAFT, ENDS],
    ("paper", "probability"): [
        Say(" It is by Bo Ek. He left", **LOUD),
        Say(" It is by Li. He"),
        ENDS,
    ],
    ("reference", "rind"): [DRAFT, ENDS],
    ("paper", "rind"): [DRAFT, Say(" Li. So the answer is Li.\nHe")],
}
for _variant in ("paper", "reference"):
    SCRIPTS |= {(_variant, when): [ENDS] for when in ("never", "once")}
    SCRIPTS[_variant, "every-sentence"] = [Say(" It was far. Then he"), ENDS]
SCRIPTS |= {("paper", when): script for when, script in ASKED.items()}

Q = QUESTION
#: What is searched for after what was written, by formulator: by a clock, FLARE, RIND, a search
#: call, a follow-up.
PAPER = {
    "question": (Q, Q, Q, Q, Q),
    "last-n": ("far.", "is by", "is by", "is by", "it?"),
    "last-sentence": ("It was far.", "It is by", "It is by", "It is by", "Follow up: Who is it?"),
    "full-context": (
        *(
            f"{Q} It was far.",
            f"{Q} It is by",
            f"{Q} It was far. It is by",
            f"{Q} It was far. It is by",
        ),
        f"{Q} Yes.\nFollow up: Who is it?",
    ),
    "current": ("It was far.", "It is by Bo Ek.", "It is by Bo Ek.", "It is by", "Who is it?"),
    "current-without-hits": ("It was far", "It is by Ek.", "It is by Ek.", "It is", "Who is it"),
    "confident-sentence": ("It was far.", "It is by Ek.", "It is by Ek.", "It is by", "Who is it?"),
    "qfs": ("directed far", "Who directed", "directed far.", "directed far.", "Who directed"),
    "term": ("", "", "", "maker", "Who is it?"),
}
#: The same of the released code: by a schedule, and by a rule that reads the draft.
RELEASED_CODE = {
    "question": (Q, Q),
    "last-n": ("▁far .", "▁far ."),
    "last-sentence": ("It was far.", "It was far."),
    "full-context": (f"{Q}  It was far.", f"{Q} It was far."),
    "current": ("It was far.", "It is by Bo Ek."),
    "current-without-hits": ("It was ", "It is by  Ek."),
    "confident-sentence": ("It was far.", "It is by  Ek."),
    "qfs": ("directed Ma?", "directed far."),
}
COLUMNS = {
    "paper": {
        "every-n": 0,
        "every-sentence": 0,
        "probability": 1,
        "rind": 2,
        "search-call": 3,
        "follow-up": 4,
    },
    "reference": {"every-n": 0, "every-sentence": 0, "probability": 1, "rind": 1},
}
#: Triggers that flag no words, and those that search for the question before anything is written.
FLAGLESS = ("every-n", "every-sentence", "search-call", "follow-up")
SEARCHES_FIRST = [("paper", "probability"), *(("paper", when) for when in FLAGLESS[:2])]
SEARCHES_FIRST += [("reference", when) for when in FLAGLESS[:2]]


def conflict(variant: str, when: str, what: str) -> str:
    triggers, formulators = TABLES[variant]
    return find_conflict(triggers.named(when), formulators.named(what))


@pytest.mark.parametrize(("variant", "when", "what"), PAIRS)
def test_every_pair_asks_and_answers_or_is_refused(variant: str, when: str, what: str) -> None:
    settings: dict[str, Any] = {"variant": variant, "when": when, "what": what, "top_n": 2} | (
        {"n": 4} if when == "every-n" else {}
    )
    if message := conflict(variant, when, what):
        with pytest.raises(SettingError) as caught:
            method("dragin", **settings)
        assert str(caught.value) == message
        assert message.startswith(f"when={when!r} with what={what!r} makes no sense: ")
        assert "use " in message
        return
    for marker in ("▁", "Ġ") if variant == "paper" else ("▁",):
        looks = {"directed": 5.0, "far": 4.0}
        script = SCRIPTS[variant, when]
        driven = drive(
            method("dragin", **settings), *script, question=QUESTION, looks=looks, marker=marker
        )
        assert driven.trace.ended == "answered"
        # whose chunk ends before it
        assert "Li" in driven.trace.answer or (variant, when) == ("reference", "every-n")
        queries = [step.query for step in driven.trace.steps if step.query is not None]
        if (variant, when) in SEARCHES_FIRST:
            first = queries.pop(0)
            assert first.text == QUESTION
            quiet = what == "question" or when == "probability"
            assert first.note == ("" if quiet else "the question: nothing is written yet")
        if when in ("never", "once"):
            assert [query.text for query in queries] == [QUESTION] * (when == "once")
            continue
        table = PAPER if variant == "paper" else RELEASED_CODE
        # it ranks as qfs does here
        assert queries[0].text == table[what.removesuffix("-etc")][COLUMNS[variant][when]]
        stands_in = f"the last {'token' if variant == 'paper' else 'word'} stands in for the hits"
        flags = what in ("qfs", "qfs-etc", "current-without-hits") and when in FLAGLESS
        assert queries[0].note == (f"{stands_in} that this trigger does not give" if flags else "")


def test_what_is_refused() -> None:
    refused = {
        (when, what) for when, what in product(NAMES, FORMULATORS) if conflict("paper", when, what)
    }
    before = {
        (when, what) for when in ("never", "once") for what in FORMULATORS if what != "question"
    }
    term = {(when, "term") for when in NAMES if when not in ("search-call", "follow-up")}
    assert refused == before | term
    message = conflict("paper", "rind", "term")
    assert "only with when='search-call', 'follow-up', 'search-tag' or a dl.Call; use" in message
    refused = {pair for pair in product(RELEASED, FORMULATIONS) if conflict("reference", *pair)}
    assert refused == {
        (when, what) for when in ("never", "once") for what in FORMULATIONS if what != "question"
    }
    assert set(list(TRIGGERS)[: len(RELEASED)]) == set(RELEASED)
