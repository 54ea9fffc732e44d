"""From look to word: the bands are the attention that was paid and the nats that were given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Trace
from dragin_lab.views import theme

RECORDED = Path(__file__).parents[2] / "corpora" / "real_traces" / "wrong-passage.trace"


@pytest.fixture
def trace() -> Trace:
    return dl.Trace.load(RECORDED)


def test_the_bands_are_attention_and_nats(trace: Trace) -> None:
    source = dl.Attribution(trace)
    row = source.retrievals[source.retrievals["used"]].iloc[0]
    query = trace.steps[row["step"] - 1].query
    (sankey,) = source.flow().data
    assert source.flow() == source.flow(int(row["step"]))
    link, asked = sankey.link, int(query.chosen.sum())
    weights = query.weights[query.chosen]
    assert link.value[:asked] == pytest.approx(weights / weights.sum())
    assert set(link.target[:asked]) == {0}, "each word of the query goes into it"
    words = source.words.query("mark == 'passage'")
    words = words[words["retrieval"] == row["step"]]
    passages = source.passages[source.passages["retrieval"] == row["step"]]
    gave = [value for at, value in zip(link.source, link.value, strict=True) if at > asked]
    labels, into = sankey.node.label, dict(zip(link.target, link.value, strict=True))
    assert np.sort(gave) == pytest.approx(np.sort(words["nats"] / words["nats"].sum()))
    place = asked + 1
    for number in passages["number"]:
        own = words[words["passage"] == number]
        assert labels[place].startswith(f"{number} ")
        assert labels[place + 1 : place + 1 + len(own)] == tuple(own["word"])
        assert (sankey.node.color[place] == theme.GREY) == (not len(own))
        share = own["nats"].sum() / words["nats"].sum()
        assert into[place] == pytest.approx(max(share, 0.03))
        place += 1 + len(own)
    assert place == len(labels)


def test_without_weights_or_a_retrieval(trace: Trace) -> None:
    source = dl.Attribution(trace)
    first = next(step for step in trace.steps if step.query is not None)
    first.query.chosen = np.zeros_like(first.query.chosen)
    assert source.flow(first.index + 1).data[0].node.label[1] == "the draft"
    with pytest.raises(SettingError, match="step"):
        source.flow(99)
    first.query = None
    assert "retrieved nothing" in source.flow(first.index + 1).layout.annotations[0].text
