"""What a method is called by its settings, and the same method with one of them exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import dragin_lab as dl
from dragin_lab.core.method import METHODS, VARIANTS, changed, exchanged, label, method
from dragin_lab.core.parts import Part
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.core.triggers import Rind
from dragin_lab.data.presets import preset
from dragin_lab.errors import SettingError


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_changed_by_default(name: str, variant: str) -> None:
    made = method(name, variant=variant)
    assert changed(made) == {}
    assert label(made) == (name if variant == "reference" else f"{name}-paper")


@pytest.mark.parametrize(
    ("name", "settings", "called"),
    [
        ("dragin", {"threshold": 0.8}, "dragin-threshold=0.8"),
        ("dragin", {"variant": "paper", "threshold": 1}, "dragin-paper-threshold=1.0"),
        ("dragin", {"threshold": 1.2, "top_n": 25}, "dragin"),
        ("dragin", {"what": "last-sentence"}, "dragin-what=last-sentence"),
        ("dragin", {"when": "never", "what": "question"}, "dragin-when=never-what=question"),
        ("flare", {"threshold": 0.3}, "flare-threshold=0.3"),  # its doubt_limit only follows
        ("flare", {"threshold": 0.3, "doubt_limit": 0.5}, "flare-threshold=0.3-doubt_limit=0.5"),
        ("fl-rag", {"n": 8, "max_new_tokens": 100}, "fl-rag-n=8-max_new_tokens=100"),
        ("dragin", {"variant": "paper", "normalize": "sentence"}, "dragin-paper-threshold=1.2-normalize=sentence"),
    ],
)
def test_labels_name_what_differs(name: str, settings: dict[str, Any], called: str) -> None:
    made = method(name, **settings)
    assert label(made) == called
    assert method(name, variant=made.variant, **changed(made)) == made


def test_one_setting_is_exchanged_and_what_follows_from_it_follows() -> None:
    made = exchanged(method("flare", threshold=0.3, top_k=5), threshold=0.2)
    assert (made.threshold, made.settings["doubt_limit"], made.top_k) == (0.2, None, 5)
    kept = exchanged(method("flare", doubt_limit=0.5), threshold=0.2)
    assert kept.settings["doubt_limit"] == 0.5
    with pytest.raises(SettingError, match="no meaning"):
        exchanged(method("sr-rag"), threshold=1)


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
    assert exchanged(published, when=when).threshold == 0.5
    with pytest.raises(SettingError, match="contradicts"):
        exchanged(published, when="rind@0.5", threshold=0.7)


def test_theta_stays_with_the_trigger_it_was_chosen_for() -> None:
    published = preset("llama2-7b-chat", "hotpotqa", source="released", what="last-n")
    margin = method("dragin", when="margin").threshold
    assert preset("llama2-7b-chat", "hotpotqa", source="released", when="margin").threshold == margin
    assert exchanged(published, when="margin").threshold == margin
    assert exchanged(published, when="rind").threshold == published.threshold
    assert preset("llama2-7b-chat", "hotpotqa", source="released", when="every-sentence").threshold is None


def test_none_is_the_default_of_any_trigger() -> None:
    for name in TRIGGERS.names():
        if "threshold" in TRIGGERS.settings_of(name):
            assert method("dragin", when=name, what="question", threshold=None).threshold is not None


# -- True and False ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["false", "False", 0, 1, None, 0.0, "", [True]])
def test_what_is_true_or_false_is_nothing_else(value: Any) -> None:
    @dl.when("loud", threshold=1)
    def loud(draft: dl.Draft, doubled: bool = False) -> Any:
        return draft.entropy * (1 + doubled)

    for make in (
        lambda: Rind(check_content_words=value),
        lambda: method("etc", absolute=value),
        lambda: method("dragin", when="loud", doubled=value),
    ):
        with pytest.raises(SettingError, match=r"(check_content_words|absolute|doubled)=.*give True or False"):
            make()


def test_every_part_with_a_truth_value_checks_it() -> None:
    def all_below(kind: type[Part]) -> set[type[Part]]:
        return {kind, *(one for sub in kind.__subclasses__() for one in all_below(sub))}

    TRIGGERS.names()
    for part in all_below(Part):
        if part.__module__.startswith("dragin_lab."):
            assert part.__post_init__ is Part.__post_init__


# -- triggers without a default θ -------------------------------------------------------------------------------------


def test_a_trigger_without_a_default_threshold_has_a_label_and_can_be_changed() -> None:
    @dl.when("bare")
    def bare(draft: dl.Draft) -> Any:
        return draft.entropy

    for variant in VARIANTS:
        made = method("dragin", variant=variant, when="bare", threshold=0.4)
        assert label(made).endswith("when=bare-threshold=0.4")
        assert exchanged(made, top_k=2).threshold == 0.4
        assert exchanged(made, threshold=0.5).threshold == 0.5
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
    assert label(made) == "dragin-when=own-needy-threshold=0.4-scale=2.0"
    assert exchanged(made, scale=3.0).settings["scale"] == 3.0
    with pytest.raises(SettingError, match=r"'own-needy' needs scale; write own-needy\(scale=…\)"):
        method("dragin", when=Own, threshold=1)
