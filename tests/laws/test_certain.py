"""What a replay calls certain at other settings is what asking again with these settings gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from given import SETTINGS, Case, any_method, some
from hypothesis import assume, given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.trace.file import save_trace


@some(3)
@given(case=any_method(), draw=st.data(), slim=st.booleans())
def test_certain_is_certain(case: Case, draw: st.DataObject, slim: bool) -> None:
    question = case.questions[0]
    trace = case.lab.ask(question, case.method)
    with tempfile.TemporaryDirectory() as folder:
        stored = dl.Trace.load(save_trace(trace, Path(folder) / "a.trace", slim=slim))
    replay = dl.Replay(
        stored, nlp=case.nlp, tokenizer=draw.draw(st.sampled_from([None, case.lab.model.tokenizer]))
    )
    able = {key: SETTINGS[key] for key in replay.tunable if key in SETTINGS}
    assume(able)
    changed: dict[str, Any] = draw.draw(st.fixed_dictionaries({}, optional=able))
    outcome = replay.at(**changed)
    real = case.lab.ask(question, exchange_settings(case.method, **changed))
    for turn in outcome.reached:
        if turn.decision is None or not turn.certain:
            continue
        made = real.steps[turn.step].decision
        assert made is not None
        assert (turn.decision.retrieve, turn.decision.token, turn.decision.sentence) == (
            made.retrieve,
            made.token,
            made.sentence,
        )
        assert np.array_equal(turn.words.hit, real.steps[turn.step].words.hit)
        if turn.query is not None:
            query = real.steps[turn.step].query
            assert query is not None
            assert turn.query.text == query.text
    assert outcome.retrievals <= real.counters["retrievals"]
    if outcome.whole:
        assert (real.text, real.counters["retrievals"]) == (trace.text, outcome.retrievals)
