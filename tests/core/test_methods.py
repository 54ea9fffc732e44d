"""Names and settings of methods: what is refused, and what it says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import spacy

import dragin_lab as dl
from dragin_lab.catalog.by_name import TABLES, find_conflict, method
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.core.dragin import Rind
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.core.settings import Declaration, MethodPart
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.presets import preset
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.reference import released
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS

BOTH = [(name, "paper") for name in METHODS] + [(name, "reference") for name in REFERENCE_METHODS]


@pytest.mark.parametrize(("name", "variant"), BOTH)
def test_every_method_in_its_variants(name: str, variant: str) -> None:
    made = method(name, variant=variant)
    assert (made.trigger.name, made.formulator.name) == METHODS[name]
    assert (made.threshold is not None) == (
        name in ("flare", "dragin", "etc", "targ", "entity-rag")
    )
    assert made.top_n == {"dragin": 25, "etc": 35}.get(name)
    assert made.top_k == (2 if (name, variant) == ("flare", "paper") else 3)
    assert made.variant == variant
    assert hash(made) == hash(method(name, variant=variant))
    assert made == method(name, variant=variant)
    settings = json.loads(json.dumps(made.settings))
    assert (settings["name"], settings["when"], settings["pipeline"]) == (
        name,
        made.trigger.name,
        made.pipeline.name,
    )
    assert dl.method is method
    assert (made.changed, made.label) == ({}, name if variant == "paper" else f"{name}-reference")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0 is out of range"),
        ({"top_k": 0}, "top_k=0 is out of range"),
        (
            {"sentence_solver": "max", "when": "probability"},
            (
                "sentence_solver='max' has no meaning for when='probability' and what='qfs' of the"
                " paper variant"
            ),
        ),
        (
            {"name": "dragon"},
            "method 'dragon' does not exist; did you mean 'dragin'\\? one of wo-rag",
        ),
        ({"name": "xyz"}, "method 'xyz' does not exist; one of wo-rag, sr-rag"),
        ({"variant": "papr"}, "variant 'papr' does not exist; did you mean 'paper'\\?"),
        ({"when": "every"}, "when 'every' does not exist; did you mean 'every-n'"),
        (
            {"scale": "sentence", "variant": "reference"},
            (
                "scale='sentence' has no meaning for when='rind' and what='qfs' of the reference"
                " variant"
            ),
        ),
        ({"when": "every-n", "threshold": 1.0}, "threshold=1.0 has no meaning for when='every-n'"),
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
    triggers, formulators = TABLES[variant]
    for when, what in product(triggers, formulators):
        if when == "call" or find_conflict(triggers.named(when), formulators.named(what)):
            continue
        exchanged = method("dragin", variant=variant, when=when, what=what)
        assert (exchanged.trigger.name, exchanged.formulator.name) == (when, what)
        assert exchanged.top_n == {"qfs": 25, "qfs-etc": 35}.get(what)


# -- the reference variant is closed ---------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name not in REFERENCE_METHODS])
def test_a_later_method_has_no_reference_variant(name: str) -> None:
    says = (
        f"method '{name}' is not in the authors' released code, so it has no reference variant; use"
        " variant='paper'"
    )
    with pytest.raises(SettingError, match=re.escape(says)):
        method(name, variant="reference")


def test_the_reference_variant_takes_no_other_trigger_or_formulator_and_says_why() -> None:
    own = dl.when("own", threshold=1.0)(lambda draft: draft.entropy)
    asks = dl.what("own")(lambda gap: gap.sentence)
    call = dl.Call(opens="<q>", closes="</q>")
    says = (
        r"='.*': variant='reference' runs the authors' released code, .*; use variant='paper' for"
        r" any other"
    )
    for trigger in ("margin", "own", "own@2", own, own(), call, TRIGGERS.named("rind")):
        with pytest.raises(SettingError, match=f"when{says}"):
            method("dragin", variant="reference", when=trigger, what="question")
    for what in ("own", "term", asks, asks(), FORMULATORS.named("qfs")):
        with pytest.raises(SettingError, match=f"what{says}"):
            method("dragin", variant="reference", what=what)


def test_methods_in_which_the_model_asks_have_longer_answers_and_a_form() -> None:
    lengths = {name: method(name).max_new_tokens for name in METHODS}
    assert {name: n for name, n in lengths.items() if n != 64} == {
        "flare-instruct": 96,
        "self-ask": 192,
        "search-r1": 1024,
    }
    assert method("self-ask", max_new_tokens=10).max_new_tokens == 10
    forms = {name: method(name).trigger.form for name in METHODS}
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
    # measured (docs/results/thresholds.md)
    assert method("dragin").threshold == Rind().threshold == 0.25
    scaled = Rind(scale="sentence")
    assert scaled.threshold == 1.2  # Table 9's scale
    assert (
        scaled == TRIGGERS.make("rind", scale="sentence") == TRIGGERS.make("rind(scale='sentence')")
    )
    assert (
        method("dragin", scale="sentence").trigger
        == method("dragin", when=scaled).trigger
        == scaled
    )
    assert method("dragin", when="rind(scale='sentence')@0.8").trigger == Rind(0.8, "sentence")
    assert method("dragin", variant="reference").threshold == 1.2


# -- what a method is called, and the same with a setting exchanged --------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "called"),
    [
        ("dragin", {"threshold": 0.8}, "dragin-threshold=0.8"),
        ("dragin", {"variant": "reference", "threshold": 1}, "dragin-reference-threshold=1.0"),
        ("dragin", {"threshold": 0.25, "top_n": 25}, "dragin"),
        ("dragin", {"variant": "reference", "threshold": 1.2, "top_n": 25}, "dragin-reference"),
        ("dragin", {"what": "last-sentence"}, "dragin-what=last-sentence"),
        ("dragin", {"when": "never", "what": "question"}, "dragin-when=never-what=question"),
        # doubt_limit follows
        ("flare", {"variant": "reference", "threshold": 0.3}, "flare-reference-threshold=0.3"),
        ("flare", {"threshold": 0.3, "doubt_limit": 0.5}, "flare-threshold=0.3-doubt_limit=0.5"),
        ("fl-rag", {"n": 8, "max_new_tokens": 100}, "fl-rag-n=8-max_new_tokens=100"),
        ("dragin", {"scale": "sentence"}, "dragin-scale=sentence"),
    ],
)
def test_labels_name_what_differs(name: str, settings: dict[str, Any], called: str) -> None:
    made = method(name, **settings)
    assert made.label == called
    assert method(name, variant=made.variant, **made.changed) == made


def test_one_setting_is_exchanged_and_what_follows_from_it_follows() -> None:
    released = method("flare", variant="reference", threshold=0.3, top_k=5)
    changed = exchange_settings(released, threshold=0.2)
    assert (changed.threshold, changed.settings["doubt_limit"], changed.top_k) == (0.2, None, 5)
    assert exchange_settings(method("dragin"), scale="sentence").threshold == 1.2
    kept = exchange_settings(method("flare", doubt_limit=0.5), threshold=0.2)
    assert kept.settings["doubt_limit"] == 0.5
    with pytest.raises(SettingError, match="no meaning"):
        exchange_settings(method("sr-rag"), threshold=1)


# -- written forms beside other settings -----------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "setting", "value"),
    [
        ({"when": "rind@0.5"}, "threshold", 0.5),
        ({"what": "qfs(top_n=5)"}, "top_n", 5),
        ({"when": "search-tag(puts_in='a {passages}')"}, "puts_in", "a {passages}"),
    ],
)
def test_a_keyword_replaces_what_a_written_form_states(
    parts: dict[str, Any], setting: str, value: Any
) -> None:
    name = "search-r1" if setting == "puts_in" else "dragin"
    assert method(name, **parts, **{setting: None}).settings[setting] == value
    assert method(name, **parts, **{setting: value}).settings[setting] == value
    other = "b {passages}" if setting == "puts_in" else 7
    assert method(name, **parts, **{setting: other}).settings[setting] == other


@pytest.mark.parametrize("when", ["rind@0.5", released.Rind(threshold=0.5)])
def test_a_form_comes_before_a_preset_and_before_the_method_that_is_changed(when: Any) -> None:
    published = preset("llama2-7b-chat", "hotpotqa", source="released")
    assert published.threshold != 0.5
    assert preset("llama2-7b-chat", "hotpotqa", source="released", when=when).threshold == 0.5
    assert exchange_settings(published, when=when).threshold == 0.5
    assert exchange_settings(published, when=when, threshold=0.7).threshold == 0.7


def test_theta_stays_with_the_trigger_it_was_chosen_for() -> None:
    published = preset("llama2-7b-chat", "hotpotqa", source="released", what="last-n")
    probability = method("dragin", variant="reference", when="probability").threshold
    assert (
        preset("llama2-7b-chat", "hotpotqa", source="released", when="probability").threshold
        == probability
    )
    assert exchange_settings(published, when="probability").threshold == probability
    assert exchange_settings(published, when="rind").threshold == published.threshold
    assert (
        preset("llama2-7b-chat", "hotpotqa", source="released", when="every-sentence").threshold
        is None
    )
    papers = method("dragin", threshold=0.7)
    assert (
        exchange_settings(papers, when="margin").threshold
        == method("dragin", when="margin").threshold
    )


def test_none_is_the_default_of_any_trigger() -> None:
    for name in TRIGGERS:
        if "threshold" in TRIGGERS.named(name).defaults():
            assert (
                method("dragin", when=name, what="question", threshold=None).threshold is not None
            )


# -- what a setting may be -------------------------------------------------------------------------

DECLARED = [
    pytest.param(part, name, id=f"{part.__module__.rpartition('.')[2]}-{part.name}-{name}")
    for variant in VARIANTS
    for table in TABLES[variant]
    for part in map(table.named, table)
    for name, declared in part.declared().items()
    if declared.kind is not object or declared.choices
]
REQUIRED: dict[str, dict[str, Any]] = {"call": {"opens": "<q>", "closes": "</q>"}}


def list_wrong_values(declared: Declaration) -> list[Any]:
    wrong: list[Any] = [[], {}, object(), "abc"]
    wrong += [] if declared.optional else [None]
    if declared.choices:
        return [*wrong, True, 0, declared.choices[0].upper()]
    if declared.kind is bool:
        return [*wrong, "false", "False", 0, 1, 0.0, "", [True]]
    wrong += [True, False, float("nan"), float("inf"), declared.ge - 1]
    return [*wrong, declared.ge + 0.5] if declared.kind is int else wrong


@pytest.mark.parametrize(("part", "name"), DECLARED)
def test_a_wrong_value_of_a_declared_setting_is_refused_by_name(
    part: type[MethodPart], name: str
) -> None:
    required = REQUIRED.get(part.name, {})
    part(**required)
    for value in list_wrong_values(part.declared()[name]):
        with pytest.raises(SettingError) as caught:
            part(**required, **{name: value})
        assert str(caught.value).startswith(name), value


# -- triggers without a default θ ------------------------------------------------------------------


def test_a_trigger_without_a_default_threshold_has_a_label_and_can_be_changed() -> None:
    @dl.when("bare")
    def bare(draft: dl.Draft) -> Any:
        return draft.entropy

    made = method("dragin", when="bare", threshold=0.4)
    assert made.label == "dragin-when=bare-threshold=0.4"
    assert exchange_settings(made, top_k=2).threshold == 0.4
    assert exchange_settings(made, threshold=0.5).threshold == 0.5
    with pytest.raises(SettingError, match=r"needs a threshold, such as bare@0\.6"):
        method("dragin", when="bare")


def test_a_class_with_a_setting_that_must_be_given() -> None:
    @dataclass(frozen=True)
    class Own(dl.Trigger):
        name = "own-needy"
        threshold: float
        scale: float

        def score(self, draft: dl.Draft) -> Any:
            return draft.entropy * self.scale

    made = method("dragin", when=Own(threshold=0.4, scale=2.0))
    assert made.label == "dragin-when=own-needy-threshold=0.4-scale=2.0"
    assert exchange_settings(made, scale=3.0).settings["scale"] == 3.0
    with pytest.raises(SettingError, match=r"threshold='high' is not a number"):
        method("dragin", when=Own, threshold="high", scale=1.0)
    with pytest.raises(SettingError, match=r"'own-needy' needs scale; write own-needy\(scale=…\)"):
        method("dragin", when=Own, threshold=1)
