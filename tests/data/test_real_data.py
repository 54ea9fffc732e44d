"""Real questions over real passages, as a new user asks them: no model here can answer, all must be traced right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command import Command

from dragin_lab import lab
from dragin_lab.almanac import embedded_model_path
from dragin_lab.cli import app as cli
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Trace

DATA = Path(os.environ.get("DRAGIN_LAB_DATA") or Path(__file__).parents[2] / "data")
QUESTIONS = DATA / "hotpotqa" / "hotpot_dev_distractor_v1.json"
PASSAGES = DATA / "passages" / "psgs_w100.tsv.gz"
MODELS = {"embedded": embedded_model_path(), "stories260K": DATA.parent / "models" / "stories260K"}

pytestmark = pytest.mark.skipif(
    not (QUESTIONS.is_file() and PASSAGES.is_file()), reason="HotpotQA and passages are not in DRAGIN_LAB_DATA"
)


@pytest.fixture(scope="module")
def index() -> BM25:
    return BM25(Corpus.load(PASSAGES))


@pytest.mark.parametrize(
    ("model", "method", "variant"),
    [
        ("embedded", "dragin", "reference"),
        ("stories260K", "self-ask", "paper"),
        ("stories260K", "flare-instruct", "paper"),  # whose preamble that shows the call outgrows the window
    ],
)
def test_a_real_question(
    command: Command, index: BM25, tmp_path: Path, monkeypatch: Any, model: str, method: str, variant: str
) -> None:
    monkeypatch.setattr(lab, "open_retriever", lambda *given: index)  # one index for all
    if not MODELS[model].is_dir():
        pytest.skip(f"{model} is not beside DRAGIN_LAB_DATA")
    rows = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    row = rows[len(method + variant) % len(rows)]
    window = json.loads((MODELS[model] / "config.json").read_text())["max_position_embeddings"]
    path = tmp_path / "a.trace"
    asked = (
        "ask", row["question"], "--gold", row["answer"], "--model", MODELS[model], "--corpus", PASSAGES,
        "--method", method, "--set", f"variant={variant}", "--save", path,
    )  # fmt: skip
    if (model, method) == ("stories260K", "flare-instruct"):
        command.refused(*asked, says=("the template's preamble and instruction", "window of 512 tokens"))
        return
    ran = command(*asked)
    assert ran.code == cli.DONE, ran.err
    assert command("show", path).out == ran.out
    trace = Trace.load(path)
    assert trace.ended in ("answered", "length", "stalled")
    assert "".join("".join(s.kept for s in trace.steps).split()) == "".join(trace.text.split())
    assert all(s.passages or "found 0" in " ".join(s.notes) for s in trace.steps if s.query is not None)
    longest = max(len(continuation.prompt_ids) + len(continuation) for continuation in trace.continuations)
    notes = " ".join(note for step in trace.steps for note in step.notes)
    assert ("more than the model's window" in notes) == ("beyond" in trace.lost) == (longest > window)
    assert ("warning: the model's window was too small" in ran.err) == bool(trace.lost)
