"""A trigger and a query of one's own, defined once: figures, controls and replay know them without a further line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from answering import embedded

import dragin_lab as dl
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.datasets import demo_questions
from dragin_lab.errors import SettingError


def test_figures_controls_and_replay_know_it(tmp_path: Path) -> None:
    @dl.when("near-tie", threshold=0.6, source="TARG")
    def near_tie(draft: dl.Draft, first: int = 0) -> np.ndarray:
        """Second-likeliest over likeliest probability of each token."""
        return draft.alternative_probs[:, 1] / draft.alternative_probs[:, 0]  # (n,)

    @dl.what("last-ten")
    def last_ten(place: dl.Gap) -> str:
        """The last ten words."""
        return " ".join(place.context.split()[-10:])

    lab = embedded()
    trace = lab.ask(demo_questions()[0], when="near-tie", what="last-ten", max_new_tokens=24)
    fired = [step.decision for step in trace.steps if step.decision is not None and step.decision.retrieve]
    assert fired
    assert re.search(r"scores 0\.\d+, above θ 0\.6", fired[0].reason)
    figure = trace.heatmap()
    assert "near-tie score of the word" in [note.text for note in figure.layout.annotations]
    assert figure.layout.shapes[0].label.text == "θ 0.6"
    assert 0.6 in lab.tune([trace]).thetas
    replay = dl.Replay(trace)
    assert replay.at().whole
    assert replay.at().retrievals == trace.counters["retrievals"]
    never = replay.at(threshold=1.0)  # a quotient of probabilities is at most 1
    assert (never.retrievals, never.since) == (0, fired[0] and trace.steps[0].index)
    assert "ask the question again" in never.why
    # Without the definitions what is recorded is shown, and a replay is refused.
    trace.save(tmp_path / "own.trace")
    del TRIGGERS._parts["near-tie"]
    loaded = dl.Trace.load(tmp_path / "own.trace")
    assert "near-tie score" in loaded.heatmap().to_json()
    with pytest.raises(SettingError, match="the trace's trigger 'near-tie' is not defined here"):
        dl.Replay(loaded)
