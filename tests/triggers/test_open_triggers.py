"""Custom triggers and formulators: defined in a few lines; wrong ones refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import Say, drive

import dragin_lab as dl
from dragin_lab.catalog.exchanged import restore_method
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.method import METHODS
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.errors import SettingError
from dragin_lab.study.whatif import Replay

QUESTION = "Who directed Ma?"
LOUD: dict[str, Any] = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}, "doubt": {"Bo": 0.9}}
DRAFT = Say(" It was far. It is by Bo Ek. He left", **LOUD)
SCRIPT = [DRAFT, Say(" Li. So the answer is Li.\nHe")]


def define() -> None:
    @dl.when("surprise", threshold=2.0, source="a test")
    def surprise(draft: dl.Draft, weight: float = 1.0) -> np.ndarray:
        """Entropy, weighed."""
        return weight * draft.entropy

    @dl.what("last-two")
    def last_two(gap: dl.Gap) -> str:
        """The last two words."""
        return " ".join(gap.context.split()[-2:])


def test_a_custom_trigger_and_formulator(tmp_path: Path) -> None:
    define()
    method = dl.method(when="surprise(weight=0.5)@3", what="last-two")
    driven = drive(method, *SCRIPT, question=QUESTION)
    trace = driven.trace
    decision = trace.steps[0].decision
    assert decision.retrieve
    assert decision.reason == "'Bo' scores 4.5, above θ 3"
    assert driven.queries == ["is by"]
    assert trace.answer == "Li"
    assert (trace.method["when"], trace.method["weight"], trace.method["threshold"]) == (
        "surprise",
        0.5,
        3.0,
    )
    # A saved trace shows it, and is replayed where it is defined.
    loaded = dl.Trace.load(trace.save(tmp_path / "own.trace"))
    assert "surprise" in loaded._repr_html_()
    assert Replay(loaded).at(threshold=3).turns[0].change == ""
    assert restore_method(loaded.method) == method
    TRIGGERS._parts.pop("surprise")
    assert "surprise" in loaded._repr_html_()
    with pytest.raises(
        SettingError, match=r"'surprise' is not defined here; define it with @dl\.when"
    ):
        Replay(loaded)


@pytest.mark.parametrize("unit", ["word", "sentence", "draft"])
@pytest.mark.parametrize("pool", ["max", "mean", "min", "sum"])
def test_units_and_pools_end_in_an_answer(unit: str, pool: str) -> None:
    dl.when("own", threshold=1e9, unit=unit, pool=pool, skip_stop_words=True)(
        lambda draft: draft.entropy
    )
    script = [Say(" It is Bo. So the answer is Bo.\nHe")]
    if unit == "sentence":  # which looks one sentence ahead
        script = [Say(" It is Bo. So the"), Say(" So the answer is Bo.\nHe")]
    driven = drive(dl.method(when="own", what="question"), *script)
    assert driven.queries == []
    assert driven.trace.answer.startswith("Bo")


def test_a_draft_that_fires_as_a_whole_is_written_again() -> None:
    dl.when("gate", threshold=0.5, unit="draft", pool="mean")(lambda draft: draft.entropy)
    script = [Say(" Bo made it.", entropy={"Bo": 9.0}), Say(" So the answer is Li.\nHe")]
    driven = drive(dl.method(when="gate", what="question"), *script, question=QUESTION)
    assert driven.queries == [QUESTION]
    assert driven.trace.answer == "Li"
    assert "Bo made" not in driven.trace.text


@pytest.mark.parametrize("unit", ["word", "draft"])
def test_a_trigger_that_always_fires_on_whole_drafts_comes_to_an_end(unit: str) -> None:
    dl.when("always", threshold=0.5, unit=unit, cut="draft")(lambda draft: np.ones(len(draft)))
    script = [Say(" Bo made it. He is old."), Say(" It is Li. So the answer is Li.\nHe")]
    driven = drive(dl.method(when="always", what="question"), *script, question=QUESTION)
    assert driven.queries == [QUESTION]
    assert driven.trace.answer == "Li"
    assert "written again after a retrieval" in driven.trace.steps[1].decision.reason


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("surprise@2", "surprise@2"),
        ("surprise( weight = 0.5 ) @ 3", "surprise(weight=0.5)@3"),
        ("rind@1.2", "rind@1.2"),
        ("rind(scale='sentence')@0.8", "rind(scale='sentence')@0.8"),
    ],
)
def test_the_written_form_reads_back(written: str, same: str) -> None:
    define()
    made = TRIGGERS.make(written)
    assert str(made) == same
    assert TRIGGERS.make(str(made)) == made
    assert str(FORMULATORS.make("qfs( top_n = 10 )")) == "qfs(top_n=10)"


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (
            lambda d: d.entropy[:-1],
            r"gave an array of shape \(\d+,\).*give one number per token, shape \(\d+,\)",
        ),
        (
            lambda d: np.full(len(d), np.nan),
            r"gave nan for token 0 \('.*'\) of .*; give finite numbers",
        ),
        (lambda d: ["a"] * len(d), "type <U1"),
        (lambda d: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda d: d.attention[0], r"draft.attention was not captured; .* needs=\('attention',\)"),
        (
            lambda d: d.entropy.__setitem__(0, 1.0),
            r"read-only; copy it first: draft\.entropy\.copy\(\)",
        ),
    ],
)
def test_mistakes_name_the_function_and_the_remedy(score: Any, says: str) -> None:
    dl.when("wrong", threshold=0.5)(score)
    with pytest.raises(SettingError, match=f"(?s)'wrong'.*{says}"):
        drive(dl.method(when="wrong", what="question"), DRAFT, question=QUESTION)


def test_a_formulator_sees_words_and_tokens_of_the_sentence_and_which_were_flagged() -> None:
    seen: list[dl.Gap] = []

    @dl.what("watching")
    def watching(gap: dl.Gap) -> str:
        seen.append(gap)
        return gap.sentence

    drive(dl.method("dragin", threshold=1.0, what="watching"), *SCRIPT, question=QUESTION)
    [gap] = seen
    assert gap.words == ("It", "is", "by", "Bo", "Ek.")
    assert [word for word, hit in zip(gap.words, gap.hits, strict=True) if hit] == ["Bo"]
    assert "".join(gap.tokens).split() == list(gap.words)
    assert len(gap.doubt) == len(gap.tokens)
    assert gap.tokens[int(gap.doubt.argmax())].strip() == "Bo"
    assert gap.draft.text[: gap.cut] == "It was far. It is by"


@pytest.mark.parametrize("query", [None, "", "  ", 3, ["a"], "x" * 100_000])
def test_queries_that_cannot_be_sent_are_refused(query: Any) -> None:
    class Odd(dl.Formulator):
        name = "odd"

        def text(self, gap: dl.Gap) -> Any:
            return query

    dl.what("bad")(lambda gap: query)
    for what in ("bad", Odd):
        with pytest.raises(SettingError, match=r"query formulator '(bad|odd)' returned "):
            drive(dl.method("dragin", threshold=0.1, what=what), DRAFT, question=QUESTION)


def test_definitions_are_checked_where_they_are_made() -> None:
    with pytest.raises(SettingError, match="'rind' is a built-in trigger"):
        dl.when("rind", threshold=1)(lambda draft: draft.entropy)
    with pytest.raises(SettingError, match="'qfs' is a built-in query formulator"):
        dl.what("qfs")(lambda gap: "x")
    with pytest.raises(SettingError, match="'first' of '<lambda>' has no default"):
        dl.when("own", threshold=1)(lambda draft, first: draft.entropy)
    with pytest.raises(
        SettingError,
        match="trigger 'own': unit 'page' does not exist; one of word, sentence, step, draft",
    ):
        dl.when("own", unit="page")
    with pytest.raises(SettingError, match="judges a draft and so cannot cut before a word"):
        dl.when("own", unit="draft", cut="word")
    with pytest.raises(SettingError, match=r"needs 'attention' is str; give a tuple"):
        dl.when("own", needs="attention")
    define()
    define()  # running a cell again replaces what it defines
    with pytest.raises(
        SettingError, match=r"when 'suprise' does not exist; did you mean 'surprise'"
    ):
        dl.method(when="suprise")
    with pytest.raises(
        SettingError,
        match="heavy has no meaning for trigger 'surprise': its settings are threshold",
    ):
        TRIGGERS.make("surprise(heavy=1)")
    with pytest.raises(SettingError, match="cannot be read"):
        TRIGGERS.make("surprise(weight=draft)")
    dl.when("bare")(lambda draft: draft.entropy)
    with pytest.raises(SettingError, match=r"trigger 'bare' needs a threshold, such as bare@0\.6"):
        dl.method(when="bare")


def test_a_changed_function_is_another_one() -> None:
    define()
    before = dl.method(when="surprise").settings
    dl.when("surprise", threshold=2.0)(lambda draft, weight=1.0: draft.entropy + weight)
    assert dl.method(when="surprise").settings["defined"] != before["defined"]
    with pytest.raises(SettingError, match="'surprise' has changed since the trace was written"):
        restore_method(before)


def test_what_there_is_can_be_listed() -> None:
    define()
    found = {entry.name: entry for entry in dl.methods("when")}
    assert found["surprise"].settings == {"threshold": 2.0, "weight": 1.0}
    assert (found["surprise"].source, found["surprise"].line) == ("a test", "Entropy, weighed.")
    assert {entry.name for entry in dl.methods()} == set(METHODS)
    assert all(entry.line for entry in (*dl.methods("when"), *dl.methods("what"), *dl.methods()))
    assert "last-two" in [entry.name for entry in dl.methods("what")]


def test_a_custom_call_puts_passages_into_the_text() -> None:
    call = dl.Call(
        opens="<search>", closes="</search>", puts_in="\n<information>{passages}</information>\n"
    )
    method = dl.method(when=call, what="term")
    script = [
        Say(" Let me see. <search>the maker of Ma</search> Bo"),
        Say(" So the answer is Li.\nHe"),
    ]
    found = drive(method, *script, question=QUESTION)
    assert found.queries == ["the maker of Ma"]
    assert "<search>the maker of Ma</search>\n<information>Doc 1(Title: " in found.trace.text
    assert found.trace.answer == "Li"
    for wrong in (
        {"opens": " ", "closes": "x"},
        {"opens": "x", "closes": "y", "puts_in": "no place"},
    ):
        with pytest.raises(SettingError):
            dl.method(when=dl.Call(**wrong), what="term")
