"""What triggers may need beside probabilities, as ``needs=`` writes it."""

from __future__ import annotations

import pytest

import dragin_lab as dl
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError


@pytest.mark.parametrize("need", ["attention:8", "attention ", "hidden:last", "hidden:1.5", "entropy", "renyi:2", ""])
def test_other_needs_are_refused_where_a_trigger_is_defined(need: str) -> None:
    says = r"needs=\['.*'\] of trigger '{}': give a tuple of 'attention', .*'hidden:12'"
    with pytest.raises(SettingError, match=says.format("own")):
        dl.when("own", needs=("attention", need))
    with pytest.raises(SettingError, match=says.format("classy")):
        type("Classy", (Trigger,), {"name": "classy", "needs": ("received", need)})


@pytest.mark.parametrize(
    ("need", "layer"), [("hidden", "last"), ("hidden:3", 3), ("hidden:-1", -1), ("received", None)]
)
def test_a_trigger_says_which_hidden_states_it_needs(need: str, layer: int | str | None) -> None:
    needy = dl.when("needy", threshold=1, needs=("attention", need))(lambda draft: draft.entropy)
    assert needy(threshold=1).hidden == layer
