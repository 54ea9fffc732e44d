"""What a method is called by its settings, and the same method with one of them exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import dragin_lab as dl
from dragin_lab.catalog.methods import exchange_settings, method, tables
from dragin_lab.core.method import METHODS, VARIANTS
from dragin_lab.core.settings import Declaration, Part
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.presets import preset
from dragin_lab.errors import SettingError
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.reference.released import Rind


@pytest.mark.parametrize(
    ("name", "variant"),
    [(name, "paper") for name in METHODS] + [(name, "reference") for name in REFERENCE_METHODS],
)
def test_nothing_is_changed_by_default(name: str, variant: str) -> None:
    made = method(name, variant=variant)
    assert made.changed == {}
    assert made.label == (name if variant == "paper" else f"{name}-reference")


@pytest.mark.parametrize(
    ("name", "settings", "called"),
    [
        ("dragin", {"threshold": 0.8}, "dragin-threshold=0.8"),
        ("dragin", {"variant": "reference", "threshold": 1}, "dragin-reference-threshold=1.0"),
        ("dragin", {"threshold": 0.25, "top_n": 25}, "dragin"),
        ("dragin", {"variant": "reference", "threshold": 1.2, "top_n": 25}, "dragin-reference"),
        ("dragin", {"what": "last-sentence"}, "dragin-what=last-sentence"),
        ("dragin", {"when": "never", "what": "question"}, "dragin-when=never-what=question"),
        ("flare", {"variant": "reference", "threshold": 0.3}, "flare-reference-threshold=0.3"),  # doubt_limit follows
        ("flare", {"threshold": 0.3, "doubt_limit": 0.5}, "flare-threshold=0.3-doubt_limit=0.5"),
        ("fl-rag", {"n": 8, "max_new_tokens": 100}, "fl-rag-n=8-max_new_tokens=100"),
        ("dragin", {"scale": "sentence"}, "dragin-threshold=1.2-scale=sentence"),
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


# -- written forms beside other settings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "setting", "value"),
    [
        ({"when": "rind@0.5"}, "threshold", 0.5),
        ({"what": "qfs(top_n=5)"}, "top_n", 5),
        ({"when": "search-tag(puts_in='a {passages}')"}, "puts_in", "a {passages}"),
    ],
)
def test_a_written_form_keeps_its_settings(parts: dict[str, Any], setting: str, value: Any) -> None:
    name = "search-r1" if setting == "puts_in" else "dragin"
    assert method(name, **parts, **{setting: None}).settings[setting] == value
    assert method(name, **parts, **{setting: value}).settings[setting] == value
    other = "b {passages}" if setting == "puts_in" else 7
    with pytest.raises(SettingError, match=rf"{setting}=.* contradicts .*give one of the two"):
        method(name, **parts, **{setting: other})


@pytest.mark.parametrize("when", ["rind@0.5", Rind(threshold=0.5)])
def test_a_form_comes_before_a_preset_and_before_the_method_that_is_changed(when: Any) -> None:
    published = preset("llama2-7b-chat", "hotpotqa", source="released")
    assert published.threshold != 0.5
    assert preset("llama2-7b-chat", "hotpotqa", source="released", when=when).threshold == 0.5
    assert exchange_settings(published, when=when).threshold == 0.5
    with pytest.raises(SettingError, match="contradicts"):
        exchange_settings(published, when="rind@0.5", threshold=0.7)


def test_theta_stays_with_the_trigger_it_was_chosen_for() -> None:
    published = preset("llama2-7b-chat", "hotpotqa", source="released", what="last-n")
    probability = method("dragin", variant="reference", when="probability").threshold
    assert preset("llama2-7b-chat", "hotpotqa", source="released", when="probability").threshold == probability
    assert exchange_settings(published, when="probability").threshold == probability
    assert exchange_settings(published, when="rind").threshold == published.threshold
    assert preset("llama2-7b-chat", "hotpotqa", source="released", when="every-sentence").threshold is None
    papers = method("dragin", threshold=0.7)
    assert exchange_settings(papers, when="margin").threshold == method("dragin", when="margin").threshold


def test_none_is_the_default_of_any_trigger() -> None:
    for name in TRIGGERS.names():
        if "threshold" in TRIGGERS.named(name).defaults():
            assert method("dragin", when=name, what="question", threshold=None).threshold is not None


# -- what a setting may be --------------------------------------------------------------------------------------------

DECLARED = [
    pytest.param(part, name, id=f"{part.__module__.rpartition('.')[2]}-{part.name}-{name}")
    for variant in VARIANTS
    for _, table in tables(variant)
    for part in map(table.named, table.names())
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
def test_a_wrong_value_of_a_declared_setting_is_refused_by_name(part: type[Part], name: str) -> None:
    required = REQUIRED.get(part.name, {})
    part(**required)
    for value in list_wrong_values(part.declared()[name]):
        with pytest.raises(SettingError) as caught:
            part(**required, **{name: value})
        assert str(caught.value).startswith(name), value


@pytest.mark.parametrize(("part", "name"), DECLARED)
def test_a_declared_default_is_a_value_that_may_be(part: type[Part], name: str) -> None:
    declared, default = part.declared()[name], part.defaults()[name]
    assert declared.check(name, default) == default


# -- triggers without a default θ -------------------------------------------------------------------------------------


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
