"""Your own triggers and query formulators: their settings, what tells two definitions apart,
what a class needs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from answering import embedded

import dragin_lab as dl
from dragin_lab.errors import SettingError

QUESTION = "In which town was the director of The Ashen Rooftop born?"


@pytest.mark.parametrize(
    "name", ["length", "cut", "form", "unit", "pool", "theta", "judge", "top_k", "nlp", "label"]
)
def test_a_setting_that_stands_for_something_else_is_refused(name: str) -> None:
    source = f"lambda draft, {name}=5: draft.entropy"
    with pytest.raises(SettingError, match=f"'{name}'.*rename it"):
        dl.when("own", threshold=1.0)(eval(source))


def test_a_formulator_cannot_have_a_setting_called_text() -> None:
    with pytest.raises(SettingError, match=r"'text'.*rename it"):
        dl.what("own")(eval("lambda gap, text='x': text"))


@pytest.mark.parametrize("default", [[1], {"a": 1}, {1}, object(), np.zeros(2), np.float64(1)])
def test_a_default_that_can_change_or_cannot_be_saved_is_refused(default: Any) -> None:
    def score(draft: Any, scale: Any = default) -> Any:
        return draft.entropy

    with pytest.raises(SettingError, match=r"'scale' of 'score'.*can change or cannot be saved"):
        dl.when("own")(score)


def test_helpers_partials_and_globals_count_and_comments_do_not() -> None:
    def define(text: str, **outside: Any) -> str:
        scope: dict[str, Any] = {"__name__": "__main__", **outside}
        exec(text, scope)
        return str(dl.when("own")(scope["score"])(threshold=1.0).fingerprint)

    text = "def half(x): return x / 2\ndef score(draft): return half(draft.entropy) * SCALE"
    assert define(text, SCALE=1) != define(text, SCALE=2)
    assert define(text, SCALE=1) != define(text.replace("/ 2", "/ 3"), SCALE=1)
    chain = (
        "\n".join(f"def f{i}(x): return x * G{i}" for i in range(4))
        + "\ndef score(draft): return f0(f1(f2(f3(1))))"
    )
    first = {f"G{i}": [1] for i in range(4)}
    for name in first:  # however many values were described before it
        assert define(chain, **first) != define(chain, **first | {name: [2]})
    one, other = (
        dl.when("own")(partial(_weighted, weight=w))(threshold=1.0).fingerprint for w in (1, 2)
    )
    assert one != other


def test_what_comes_with_the_package_has_no_fingerprint() -> None:
    assert [name for name in ("dragin", "flare", "targ") if dl.method(name).described] == []


def _weighted(draft: Any, weight: float) -> Any:
    return draft.entropy * weight


def test_a_class_needs_a_name_and_dataclass_for_its_settings() -> None:
    class Nameless(dl.Trigger):
        pass

    class Undecorated(dl.Trigger):
        name = "undecorated"
        threshold: float = 0.5

    with pytest.raises(SettingError, match="Nameless has no name; write one in its class"):
        dl.method(when=Nameless)
    with pytest.raises(SettingError, match="Undecorated has settings; write @dataclass"):
        dl.method(when=Undecorated)


def test_without_brackets_the_error_says_how_to_write_it() -> None:
    with pytest.raises(SettingError, match=r"write @dl.when\('margin'\)"):
        dl.when(lambda draft: draft.entropy)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1, 5, 20, 21])
def test_targ_ends_where_its_first_tokens_are_all_that_may_be_written(most: int) -> None:
    trace = embedded().ask(QUESTION, "targ", max_new_tokens=most, threshold=1.0)
    assert trace.ended in ("length", "answered"), trace.error
    assert sum(len(step.continuation or ()) + len(step.draft or ()) for step in trace.steps) <= most


# -- names -----------------------------------------------------------------------------------------


def test_a_label_names_the_method_and_comes_back_from_a_trace() -> None:
    method = dl.method("dragin", threshold=0.7, label="mine")
    assert (method.label, method.settings["label"]) == ("mine", "mine")
    trace = embedded().ask(QUESTION, method)
    assert dl.Replay(trace).method == method
    assert repr(trace).startswith("Trace(mine/paper")


@pytest.mark.parametrize("label", ["wo-rag", "flare", "a,b", "a/b", " a", "x" * 61, 3])
def test_odd_labels_and_those_of_built_in_methods_are_refused(label: Any) -> None:
    with pytest.raises(SettingError, match="label="):
        dl.method(label=label)


# -- needs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "need", ["attention:8", "attention ", "hidden:last", "hidden:1.5", "entropies", "renyi:2", ""]
)
def test_other_needs_are_refused_where_a_trigger_is_defined(need: str) -> None:
    says = r"needs=\['.*'\] of trigger '{}': give a tuple of 'attention', .*'hidden:12'"
    with pytest.raises(SettingError, match=says.format("own")):
        dl.when("own", needs=("attention", need))
    with pytest.raises(SettingError, match=says.format("classy")):
        type("Classy", (dl.Trigger,), {"name": "classy", "needs": ("received", need)})


@pytest.mark.parametrize(
    ("need", "layer"), [("hidden", "last"), ("hidden:3", 3), ("hidden:-1", -1), ("received", None)]
)
def test_a_trigger_says_which_hidden_states_it_needs(need: str, layer: int | str | None) -> None:
    needy = dl.when("needy", threshold=1, needs=("attention", need))(lambda draft: draft.entropy)
    assert needy(threshold=1).hidden == layer
