"""Asked, found, used, right: the retrievals of whole runs, and the causes that they tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scripted import ScriptedRetriever
from test_attribution import OTHER, QUESTION, RIGHT, WRONG, Reader
from test_causes import LABELS, OTTO, episode, line
from test_causes import OTHER as IDA
from test_causes import RIGHT as FIRST

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.study.causes import Judge
from dragin_lab.study.funnel import count_funnel
from dragin_lab.trace.records import Attributed, AttributedText
from dragin_lab.trace.trace import Passage, Trace

ASKED = [{"id": "a", "question": QUESTION, "answer": "Bo Ek"}, {"id": "b", "question": QUESTION, "answer": "Ida Moe"}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dl.Runs:
    lab = dl.Lab(Reader(), retriever=ScriptedRetriever(WRONG, RIGHT))
    output = tmp_path_factory.mktemp("runs")
    lab.run(ASKED, ["sr-rag", "wo-rag"], output=output, progress=False)
    return lab.run(ASKED, ["sr-rag", "wo-rag"], output=output, progress=False, attribute=True)  # of a finished run


def test_a_run_says_what_each_retrieval_was_good_for(runs: dl.Runs) -> None:
    shown = runs.retrievals[["id", "method", "found", "used", "which", "right"]].to_numpy().tolist()
    assert shown == [["a", "sr-rag", True, True, 2, True], ["b", "sr-rag", True, True, 2, False]]
    row = runs.funnel_table().loc["sr-rag"]
    assert (row["asked"], row["found"], row["used"], row["right, of the used"]) == (2, 1, 1, 0.5)
    assert row["retrievals a used one"] == 1
    assert np.isnan(row["lost"])
    assert runs.trace("a", "sr-rag").attributed is not None


def test_the_funnel_is_drawn_from_its_table(runs: dl.Runs) -> None:
    links = runs.funnel().data[0].link
    assert list(links.value) == [2, 2, 1, 1]
    assert links.customdata[-1] == "1 retrievals of sr-rag: used → wrong answer"
    assert runs.funnel(by="dataset").data[0].node.label[0] == "questions 2"


def test_the_methods_of_a_funnel_keep_their_order(runs: dl.Runs) -> None:
    asked = pd.concat([runs.retrievals.assign(method=name) for name in ("z", "a")])
    outcomes = asked[["dataset", "id", "method"]].assign(tokens=1)
    assert list(count_funnel(asked, outcomes, "method").index) == ["z", "a"]


def test_runs_without_their_traces_keep_it(runs: dl.Runs, tmp_path: Path) -> None:
    read = dl.Runs.load(runs.save(tmp_path / "runs.zip"))
    pd.testing.assert_frame_equal(read.retrievals, runs.retrievals)
    pd.testing.assert_frame_equal(read.funnel_table(), runs.funnel_table())


def test_what_was_not_attributed_says_so(tmp_path: Path) -> None:
    lab = dl.Lab(Reader(), retriever=ScriptedRetriever(OTHER))
    plain = lab.run(ASKED, "sr-rag", output=tmp_path, progress=False, traces=False)
    with pytest.raises(SettingError, match="no answer of these runs is attributed"):
        _ = plain.retrievals
    with pytest.warns(UserWarning, match="2 of 2 answers have no trace"):
        lab.run(ASKED, "sr-rag", output=tmp_path, progress=False, attribute=True)
    with pytest.raises(SettingError, match="leave traces=False out"):
        lab.run(ASKED, "sr-rag", output=tmp_path / "else", progress=False, attribute=True, traces=False)


# -- causes -----------------------------------------------------------------------------------------------------------


def attributed(trace: Trace, passage: int) -> Trace:
    """The trace with all words of its second step from a passage, from 1; 0: from none."""
    text = trace.steps[1].continuation
    assert text is not None
    n, k = len(text), len(trace.steps[1].passages)
    nats = np.zeros((n, k))
    nats[:, passage - 1] = 5.0 * (passage > 0)
    none = np.full(n, np.log(0.01))
    one = AttributedText(1, "continuation", tuple((1, i) for i in range(k)), none + nats.sum(1), none, nats, nats)
    trace.attributed = Attributed(trace.fingerprint, 0.5, 1.0, (one,))
    return trace


def cause(passage: int, found: tuple[Passage, ...] = (OTTO, IDA), thrown: str = "") -> str:
    written = " The mother of Otto Fenn is Maud Sorrel."
    trace = episode((FIRST, None), (written, found), answer="Maud Sorrel")
    if thrown:
        step = trace.steps[1]
        draft = replace(trace.steps[0].draft, text=thrown, offsets=np.array([[0, len(thrown)]]))  # type: ignore[type-var]
        step.draft, step.decision = draft, replace(step.decision, cut=0)  # type: ignore[type-var]
    return Judge({"q": LABELS}).cause(line(trace), attributed(trace, passage)).kind


def test_an_attributed_trace_says_where_a_wrong_value_comes_from() -> None:
    assert cause(0) == "found and not used"
    assert cause(1) == "value not copied"
    assert cause(2) == "used, from another passage"
    assert cause(1, (IDA,)) == "not found"
    assert cause(1, (IDA,), thrown="The mother of Otto Fenn is Ada Torwick.") == "talked out of it"


def test_without_labels_it_goes_by_the_gold_answer() -> None:
    kinds = []
    for passage in (0, 1, 2):
        trace = episode((FIRST, None), (" She is Maud Sorrel.", (OTTO, IDA)), answer="Maud Sorrel")
        kinds.append(Judge({}).cause(line(trace), attributed(trace, passage)).kind)
    assert kinds == ["found and not used", "value not copied", "used, from another passage"]
