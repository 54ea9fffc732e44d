"""A curve is the runs at every θ: what it says of one is what is answered there, in whatever way it
was made.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answering import embedded
from given import METHODS, Case, cases, some
from hypothesis import given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.errors import RunError, SettingError
from dragin_lab.results.pieces import PIECES
from dragin_lab.study.whatif import refuse_no_interval

CORPORA = Path(__file__).parents[2] / "corpora"

#: Methods with a θ, in each variant, and triggers of one's own of each unit.
CURVED = [
    one
    for one in METHODS
    if dl.method(*one[:1], variant=one[1]).settings.get("threshold") is not None
]
TOLD = ("text", "answer", "ended", "queries", "retrievals", "tokens", "em")
PLACES = st.floats(0, 1)


@st.composite
def curved(draw: st.DrawFn) -> Case:
    """A case whose method has a θ; of a trigger of one's own where "dragin" was drawn, at times."""
    name, variant = draw(st.sampled_from(CURVED))
    case = draw(cases(name, variant))
    if (name, variant) == ("dragin", "paper") and draw(st.booleans()):
        case.method = draw(own_methods())
    return case


@st.composite
def own_methods(draw: st.DrawFn) -> dl.Method:
    """A trigger of any unit, pool and cut on entropies."""
    unit = draw(st.sampled_from(["word", "sentence", "step", "draft"]))
    parts: dict[str, Any] = {"unit": unit, "pool": draw(st.sampled_from(["max", "mean", "sum"]))}
    parts["skip_stop_words"] = draw(st.booleans())
    dl.when("drawn-for-curves", threshold=0.5, needs=("entropy",), **parts)(
        lambda draft: draft.entropy
    )
    what = draw(st.sampled_from(["qfs", "current-without-hits", "question", "last-sentence"]))
    return dl.method("dragin", when="drawn-for-curves", what=what, max_new_tokens=16)


def make(case: Case, **options: Any) -> dl.Curve:
    return case.lab.curve(case.questions, case.method, lowest=0.0, progress=False, **options)


def some_thetas(case: Case, curve: dl.Curve, places: list[float]) -> list[float]:
    """Values between what changes, and some where it does.

    The released code's attention is stored in single precision, so just above it there.
    """
    beside = 1 + 1e-5 * getattr(case.method.trigger, "rereads", False)
    known = [*curve.thetas.tolist(), curve.thetas[-1] + 1.0]
    inside = [known[0] + place * (known[-1] - known[0]) for place in places]
    chosen = [beside * known[int(place * (len(known) - 1))] for place in places]
    return inside + chosen


@some(6)
@given(case=curved(), places=st.lists(PLACES, min_size=1, max_size=3))
def test_at_any_theta_it_is_what_is_answered_there(case: Case, places: list[float]) -> None:
    curve = make(case)
    top = case.method.trigger.declared()["threshold"].top or math.inf
    for theta in some_thetas(case, curve, places):
        lines = {line["id"]: line for line in curve.at(theta).records[0].predictions}
        for question in case.questions:
            trace = case.lab.ask(
                question, exchange_settings(case.method, threshold=min(theta, top))
            )
            asked = trace.text, trace.answer, trace.ended, trace.queries
            asked += (trace.counters["retrievals"], trace.counters["generated"])
            asked += (trace.scores["em"],)
            assert tuple(lines[question.id][key] for key in TOLD) == asked, theta


@some(4)
@given(case=curved())
def test_the_pieces_of_a_question_cover_every_theta_once(case: Case) -> None:
    curve = make(case)
    for _, own in curve.pieces.groupby("question"):
        assert own["from"].iloc[0] <= curve.lowest
        assert own["to"].iloc[-1] == math.inf
        assert (own["from"] < own["to"]).all()
        assert own["from"].tolist()[1:] == own["to"].tolist()[:-1]


@some(3)
@given(case=curved(), kept=PLACES, size=st.integers(1, 3))
def test_interrupted_and_resumed_alone_and_side_by_side_it_is_the_same(
    case: Case, kept: float, size: int
) -> None:
    curve = make(case)
    with tempfile.TemporaryDirectory() as folder:
        make(case, output=folder)
        (path,) = Path(folder).rglob(PIECES)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(kept * len(whole))])
        again = make(case, output=folder, batch_size=size)
        loaded = dl.Curve.load(path.parent, nlp=case.nlp)
        for other in (again, loaded, make(case, batch_size=size)):
            columns = curve.pieces.columns.drop("trace")
            rows = other.pieces[columns].sort_values(["question", "from"], ignore_index=True)
            mine = curve.pieces[columns].sort_values(["question", "from"], ignore_index=True)
            assert rows.equals(mine)


def test_a_trace_of_it_is_what_is_asked_at_that_theta() -> None:
    lab, few = embedded().replace(cache=True), dl.benchmark("almanac/hotpotqa", limit=2)
    curve = lab.curve(few, "dragin", top_n=5, progress=False)
    asking = lab.replace(exemplars=few.template)
    for theta in (0.2, 0.4, 1.0):
        for question in few.questions:
            there = curve.trace(question.id, theta)
            real = asking.ask(question, "dragin", top_n=5, threshold=theta)
            assert there.method == real.method
            for one, other in zip(there.steps, real.steps, strict=True):
                assert np.array_equal(one.words.hit, other.words.hit)
                assert one.decision is not None
                assert other.decision is not None
                assert one.decision.reason == other.decision.reason


def test_the_table_has_a_row_where_anything_changes() -> None:
    curve = embedded().curve(dl.benchmark("almanac/hotpotqa", limit=3), progress=False)
    table = curve.table
    assert table["until"].tolist() == [*table["value"].tolist()[1:], math.inf]
    for row in table.itertuples():
        lines = curve.at(row.value).records[0].predictions
        assert row.em == pytest.approx(np.mean([line["em"] for line in lines]))
        assert row.retrievals == pytest.approx(np.mean([line["retrievals"] for line in lines]))
        assert row.tokens == pytest.approx(np.mean([line["tokens"] for line in lines]))
    assert any(
        one != other for one, other in pairwise(zip(table["em"], table["tokens"], strict=True))
    )


def test_what_a_figure_shows_is_what_the_table_says() -> None:
    curve = dl.Curve.load(CORPORA / "almanac_curve_dragin.zip")
    table, drawn = curve.table, [one for one in curve.plot().data if one.customdata is not None]
    for name, steps in zip(("em", "f1", "retrievals"), drawn, strict=True):
        assert steps.line.shape == "hv"
        assert list(steps.x)[:-1] == table["value"].tolist()
        assert list(steps.y)[:-1] == table[name].tolist()
    headroom = curve.headroom
    shown = {one.name: (one.x[0], one.y[0]) for one in headroom.plot().data if one.customdata}
    assert list(shown.values()) == [
        (row["retrievals"], row["em"]) for _, row in headroom.table.iterrows()
    ]
    other = dl.Curve.load(CORPORA / "almanac_curve_flare.zip")
    lines = [one for one in curve.frontier(other).data if one.mode == "lines+markers"]
    for line, rows in zip(lines, (table, other.table), strict=True):
        for cost, quality in zip(line.x, line.y, strict=True):
            assert quality == rows.loc[rows["retrievals"] <= cost, "em"].max()


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (dl.method("wo-rag"), "has no threshold on what is written"),
        (dl.method("flare-instruct"), "has no threshold on what is written"),
        (dl.method("fl-rag"), "has no threshold on what is written"),
    ],
    ids=str,
)
def test_where_no_theta_says_what_is_written_a_curve_is_refused(method: Any, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        embedded().curve(["Who?"], method, progress=False)


def test_what_judges_by_its_own_code_and_what_samples_are_refused() -> None:
    class Own(dl.Trigger):
        threshold: float = 0.5

        def judge(self, *given: Any, **options: Any) -> Any:
            return super().judge(*given, **options)

    own = replace(dl.method("dragin", when="entropy", what="question"), trigger=Own())
    with pytest.raises(SettingError, match="judges by code of its own"):
        refuse_no_interval(own, sampled=False)
    with pytest.raises(SettingError, match="open it with sample=False"):
        refuse_no_interval(dl.method("dragin"), sampled=True)


def test_below_what_is_known_nothing_is_said() -> None:
    curve = dl.Curve.load(CORPORA / "almanac_curve_dragin.zip")
    with pytest.raises(SettingError, match=r"θ 0\.05 is below 0\.1, from which up"):
        curve.at(0.05)
    few = embedded().curve(["Who directed The Silent Fukain?"], most=2, lowest=0, progress=False)
    assert len(few.pieces) == 2
    assert few.lowest == few.pieces["from"].min() > 0
    assert "1 question reached 2 pieces, so the curve begins at θ" in few.notes[0]


def test_a_zip_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn.zip").write_bytes(b"PK\x03\x04 torn")
    for name in ("torn.zip", "none.zip"):
        with pytest.raises(RunError, match=rf"{name}: cannot be read .+ get the file again"):
            dl.Curve.load(tmp_path / name)
