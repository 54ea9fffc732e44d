"""The score of doubt: every token has a place of its own, and marks stand where it happened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from answering import embedded
from view_samples import STATES, almanac_trace

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.errors import SettingError
from dragin_lab.study.written_order import BELOW, INSTEAD, lay_out

QUESTIONS = almanac.questions("2wikimultihopqa")[:3]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dl.Runs:
    dragin = dl.method("dragin", variant="paper", threshold=0.5, top_n=5)
    folder = tmp_path_factory.mktemp("runs")
    return embedded().run(QUESTIONS, [dragin], output=folder, traces=True, attribute=True)


# half a character is no text of a table
DRAWN = [name for name in STATES if STATES[name].continuations and name != "hostile"]


@pytest.mark.parametrize("name", DRAWN)
def test_no_token_stands_over_another(name: str) -> None:
    trace = STATES[name]
    score = lay_out(trace)
    wanted = trace.tokens.query("source != 'extraction'")
    assert len(score.tokens) == len(wanted)
    assert not score.tokens.duplicated(["x", "lane"]).any()
    assert len(score.cuts) == len(trace.queries)
    assert (score.tokens["x"] < score.end).all()


def test_what_was_thrown_away_hangs_where_what_came_instead_stands() -> None:
    trace = almanac_trace()
    score = lay_out(trace)
    first = score.cuts[0]
    for lane in (BELOW, INSTEAD):
        own = score.tokens[(score.tokens["lane"] == lane) & (score.tokens["x"] >= first)]
        assert own["x"].iloc[0] == first
    assert (score.tokens["kept"] == (score.tokens["lane"] != BELOW)).all()


def test_it_draws_the_scores_the_retrievals_and_the_ends(runs: dl.Runs) -> None:
    (name,) = runs.names
    figure = runs.doubt(name)
    bare, scored, cuts, given = figure.data
    traces = [runs.trace(one.id, name) for one in QUESTIONS]
    tokens = [one.tokens.query("source != 'extraction'") for one in traces]
    scores = np.concatenate([one["score"].to_numpy(float) for one in tokens])
    drawn = scored.z[np.isfinite(scored.z)]
    assert np.sort(drawn) == pytest.approx(np.sort(scores[np.isfinite(scores)]))
    assert np.isfinite(bare.z).sum() == np.isnan(scores).sum()
    assert len(cuts.x) == sum(len(trace.queries) for trace in traces) > 0
    used = [dl.Attribution(trace).tokens.query("step == step") for trace in traces]
    assert len(given.x) == sum((one["mark"] == "passage").sum() for one in used) > 0
    assert scored.zmax == 0.5
    first = [sorted(lay_out(trace).cuts) for trace in traces]
    firsts = dict(reversed([*zip(cuts.y, cuts.x, strict=True)]))
    assert [firsts[row] for row in sorted(firsts)] == sorted(own[0] - 0.5 for own in first if own)
    signs = ["✓" if trace.scores["em"] else "✗" for trace in traces]
    assert sorted(one.text for one in figure.layout.annotations) == sorted(signs)
    assert len(runs.doubt(name, limit=1).layout.yaxis.tickvals) == 1


def test_runs_without_traces_say_how_to_keep_them() -> None:
    finished = dl.Runs.load(Path(__file__).parents[2] / "corpora" / "almanac_methods.zip")
    with pytest.raises(SettingError, match="traces=True"):
        finished.doubt("flare paper")
