"""Names and settings of methods: what is refused, and what it says."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import pytest
import spacy

import dragin_lab as dl
from dragin_lab.catalog.methods import find_conflict, method, tables
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.core.triggers import Rind
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS

BOTH = [(name, "paper") for name in METHODS] + [(name, "reference") for name in REFERENCE_METHODS]


@pytest.mark.parametrize(("name", "variant"), BOTH)
def test_every_method_in_its_variants(name: str, variant: str) -> None:
    made = method(name, variant=variant)
    assert (made.trigger.name, made.formulator.name) == METHODS[name]
    assert (made.threshold is not None) == (name in ("flare", "dragin", "etc", "targ", "entity-rag"))
    assert made.top_n == {"dragin": 25, "etc": 35}.get(name)
    assert made.top_k == (2 if (name, variant) == ("flare", "paper") else 3)
    assert made.variant == variant
    assert hash(made) == hash(method(name, variant=variant))
    assert made == method(name, variant=variant)
    settings = json.loads(json.dumps(made.settings))
    assert (settings["name"], settings["when"], settings["pipeline"]) == (name, made.trigger.name, made.pipeline.name)
    assert dl.method is method


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": "abc"}, "threshold='abc' is not a number"),
        ({"top_n": 0}, "top_n=0 is out of range; it must be at least 1"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 is out of range"),
        ({"top_k": 0}, "top_k=0 is out of range"),
        (
            {"sentence_solver": "max", "when": "probability"},
            "sentence_solver='max' has no meaning for when='probability' and what='qfs' of the paper variant",
        ),
        ({"name": "dragon"}, "method 'dragon' does not exist; did you mean 'dragin'\\? one of wo-rag"),
        ({"name": "xyz"}, "method 'xyz' does not exist; one of wo-rag, sr-rag"),
        ({"variant": "papr"}, "variant 'papr' does not exist; did you mean 'paper'\\?"),
        ({"variant": None}, "variant None does not exist"),
        ({"when": "every"}, "when 'every' does not exist; did you mean 'every-n'"),
        ({"what": "qsf"}, "what 'qsf' does not exist; did you mean 'qfs'"),
        (
            {"scale": "sentence", "variant": "reference"},
            "scale='sentence' has no meaning for when='rind' and what='qfs' of the reference variant",
        ),
        ({"when": "never"}, "when='never' with what='qfs' makes no sense.*use what='question'"),
        ({"when": "every-n", "threshold": 1.0}, "threshold=1.0 has no meaning for when='every-n'"),
        ({"what": "term"}, "when='rind' with what='term' makes no sense.*only with when='search-call'"),
        ({"call_bonus": 1.0}, "call_bonus=1.0 has no meaning for when='rind' and what='qfs'"),
        ({"treshold": 1.0}, "setting 'treshold' does not exist; did you mean 'threshold'"),
        ({"when": 3}, "when=3 is not a trigger; pass a name such as"),
        ({"nlp": spacy.blank("en")}, "finds no sentences"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DraginLabError, match=message) as caught:
        method(**{"name": "dragin", **settings})
    assert str(caught.value).count("\n") <= 1


def test_numbers_may_be_texts_and_zero_is_a_threshold() -> None:
    assert method("dragin", threshold="1.5").threshold == 1.5  # type: ignore[arg-type]
    assert method("dragin", threshold=0).threshold == 0
    assert method("dragin", top_n=3.0).top_n == 3  # type: ignore[arg-type]


def test_the_released_flare_leaves_out_by_its_own_threshold_and_the_papers_by_beta() -> None:
    released = method("flare", variant="reference", threshold=0.3)
    assert released.settings["doubt_limit"] is None
    assert method("flare", variant="reference", doubt_limit=0.2).settings["doubt_limit"] == 0.2
    assert method("flare", threshold=0.3).settings["doubt_limit"] == 0.6  # 1 - β, β = 0.4


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_exchanged_brings_its_defaults(variant: str) -> None:
    (_, triggers), (_, formulators) = tables(variant)
    for when, what in product(triggers, formulators):
        if when == "call" or find_conflict(triggers.named(when), formulators.named(what)):
            continue
        exchanged = method("dragin", variant=variant, when=when, what=what)
        assert (exchanged.trigger.name, exchanged.formulator.name) == (when, what)
        assert exchanged.top_n == {"qfs": 25, "qfs-etc": 35}.get(what)


# -- the reference variant is closed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name not in REFERENCE_METHODS])
def test_a_later_method_has_no_reference_variant(name: str) -> None:
    says = f"method '{name}' is not in the authors' released code, so it has no reference variant; use variant='paper'"
    with pytest.raises(SettingError, match=re.escape(says)):
        method(name, variant="reference")


def test_the_reference_variant_takes_no_other_trigger_and_says_why() -> None:
    own = dl.when("own", threshold=1.0)(lambda draft: draft.entropy)
    call = dl.Call(opens="<q>", closes="</q>")
    for trigger in ("margin", "own", "own@2", own, own(), call, TRIGGERS.named("rind")):
        says = r"when='.*': variant='reference' runs the authors' released code, .*; use variant='paper' for any other"
        with pytest.raises(SettingError, match=says):
            method("dragin", variant="reference", when=trigger, what="question")


def test_the_reference_variant_takes_no_other_formulator_and_says_why() -> None:
    own = dl.what("own")(lambda gap: gap.sentence)
    for what in ("own", "term", own, own(), FORMULATORS.named("qfs")):
        with pytest.raises(SettingError, match=r"what='.*': variant='reference' runs the authors' released code"):
            method("dragin", variant="reference", what=what)


def test_methods_in_which_the_model_asks_have_longer_answers_and_a_form() -> None:
    lengths = {name: method(name).max_new_tokens for name in METHODS}
    assert {name: n for name, n in lengths.items() if n != 64} == {
        "flare-instruct": 96,
        "self-ask": 192,
        "search-r1": 1024,
    }
    assert method("self-ask", max_new_tokens=10).max_new_tokens == 10
    forms = {name: method(name).form for name in METHODS}
    assert {name: f for name, f in forms.items() if f != "reasoning"} == {
        "flare-instruct": "search",
        "self-ask": "self-ask",
        "search-r1": "search-r1",
    }
    made = method("flare-instruct", call_bonus="1.5", call_pause=3)  # type: ignore[arg-type]
    assert (made.settings["call_bonus"], made.settings["call_pause"]) == (1.5, 3)


def test_a_pipeline_of_ones_own() -> None:
    nlp = spacy.blank("de")
    nlp.add_pipe("sentencizer")
    assert "de_pipeline" in method("dragin", nlp=nlp).settings["pipeline"]


def test_the_default_threshold_belongs_to_the_scale_of_the_scores() -> None:
    assert method("dragin").threshold == Rind().threshold == 0.25  # measured (docs/results/thresholds.md)
    scaled = Rind(scale="sentence")
    assert scaled.threshold == 1.2  # Table 9's scale
    assert scaled == TRIGGERS.make("rind", scale="sentence") == TRIGGERS.make("rind(scale='sentence')")
    assert method("dragin", scale="sentence").trigger == method("dragin", when=scaled).trigger == scaled
    assert method("dragin", when="rind(scale='sentence')@0.8").trigger == Rind(0.8, "sentence")
    assert method("dragin", variant="reference").threshold == 1.2
