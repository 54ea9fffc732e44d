"""What a method is called by its settings, and the same method with one of them exchanged."""

from __future__ import annotations

from typing import Any

import pytest

from dragin_lab.core.method import METHODS, VARIANTS, changed, exchanged, label, method
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
        ("dragin", {"variant": "paper", "normalize": "sentence"}, "dragin-paper-normalize=sentence"),
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
