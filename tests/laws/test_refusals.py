"""Whatever is given to a public entry or a command is taken as meant, or refused in three lines
without a password.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub
import numpy as np
import pandas as pd
import pytest
from command import Command
from engines import lm_tiny
from hypothesis import given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab import almanac, views
from dragin_lab.cli import app as cli
from dragin_lab.data.exemplars import load_exemplars
from dragin_lab.data.presets import preset
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import DraginLabError
from dragin_lab.retrieval.bm25 import Tantivy
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.doors import Elasticsearch, as_retriever
from dragin_lab.run.benchmark import benchmark as open_benchmark
from dragin_lab.run.cluster import Recipe
from dragin_lab.trace.trace import Prompt

SEED = 41
PASSAGES = [
    dl.Passage("1", "Ann Lee", "Ann Lee was born in Ulm."),
    dl.Passage("2", "Elm Road", "Elm Road is a film."),
]


#: A password in an address, and the arguments that take an address: no message about one of them
#: repeats it.
SECRET = "s3cr/et@x"
DOORS = {
    "model",
    "corpus",
    "retriever",
    "cache",
    "source",
    "spec",
    "path",
    "paths",
    "out",
    "output",
    "address",
    "questions",
    "exemplars",
    "folder",
    "runs",
    "dataset",
    "save",
    "html",
}


class Odd:
    """Something of nobody's kind."""


#: No path in them leads out of the folder that a test works in.
TEXTS = [
    "",
    "  ",
    "\0",
    "a\0b/c",
    "Who \ud800?",
    "~no-such-user/x",
    "nowhere/x.jsonl",
    "/dev/null",
    "banana",
    "x" * 300,
    "rind@nan",
    "rind(",
    "rind(threshold=",
    "qfs(n=-1)",
    "-1",
    f"ann:{SECRET}@[::1/x",
    *(f"{kind}http://ann:{SECRET}@[::1/x" for kind in ("", "dense:")),
    "1e999",
    "0.5,",
    ",",
    "{x",
    "dense:",
    "\u0663",
    "(" * 5000,
]
THINGS = [
    *TEXTS,
    None,
    True,
    -1,
    0,
    1.5,
    math.nan,
    math.inf,
    10**400,
    1j,
    b"x",
    [],
    [None],
    [[]],
    [1],
    {},
    {"a": 1},
    (),
    {"question": "Who?"},
    ("a", "b"),
    [("a", "b")],
    ["Who?", None],
    {1},
    np.array([1.0]),
    np.int64(-3),
    Path("a\0b"),
    pd.DataFrame({"a": [1]}),
    Odd(),
    int,
    len,
    lambda: 0,
    ValueError,
]


class Entry(NamedTuple):
    """A public entry and arguments that it takes."""

    name: str
    call: Callable[..., Any]
    good: dict[str, Any]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to write into by mistake, and no hub to look things up on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "is_offline_mode", lambda: True)
    return tmp_path


@pytest.fixture
def entries(offline: Path) -> list[Entry]:
    lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level())
    corpus = dl.Corpus.from_passages(PASSAGES)
    lab = dl.Lab(lm, corpus, exemplars=[dl.Exemplar("Who?", "It is Bo Ek.", "Bo Ek")])
    method = dl.method("dragin", variant="paper", max_new_tokens=3)
    trace = lab.ask("Who is Ann Lee?", method)
    trace.save("good.trace")
    runs = lab.run(["Who is Ann?"], "wo-rag", output="good", progress=False)
    swept = lab.sweep(["Who?"], method, threshold=[1.0], progress=False)

    def sweep(**given: Any) -> Any:
        return lab.sweep(
            **{"questions": ["Who?"], "method": method, "threshold": [1.0], "progress": False}
            | given
        )

    def define(**given: Any) -> Any:
        return dl.when(**{"name": "own-score", "threshold": 1.0} | given)(
            lambda draft: draft.entropy
        )

    def save_page(path: Any, view: Any, **given: Any) -> Any:
        return views.page(path, view, **given)

    def capture(**given: Any) -> Any:
        with dl.capture(**given) as tape:
            return tape

    return [
        Entry("Question", dl.Question, {"id": "1", "text": "Who?", "golds": ("a",)}),
        Entry("Passage", dl.Passage, {"id": "1", "title": "a", "text": "b", "score": 1.0}),
        Entry("Exemplar", dl.Exemplar, {"question": "q", "rationale": "r", "answer": "a"}),
        Entry(
            "Lab",
            lambda **given: dl.Lab(**{"model": lm} | given),
            {"model": lm, "seed": 0, "cache": None},
        ),
        Entry(
            "Lab",
            lambda **given: dl.Lab(lm, **given),
            {"exemplars": None, "layout": None, "fields": None},
        ),
        Entry(
            "Lab.retriever",
            lambda **given: dl.Lab(lm, **given).retriever,
            {"corpus": corpus, "retriever": None},
        ),
        Entry("ask", lab.ask, {"question": "Who?", "method": method, "gold": None}),
        Entry(
            "stream",
            lambda **given: list(lab.stream(**given)),
            {"question": "Who?", "method": method},
        ),
        Entry(
            "ask_many",
            lambda **given: list(lab.ask_many(**given)),
            {"questions": [], "batch_size": 1},
        ),
        Entry(
            "run",
            lambda **given: lab.run(**{"progress": False} | given),
            {
                "questions": ["Who?"],
                "methods": [method],
                "output": "o",
                "limit": 1,
                "batch_size": 1,
                "traces": None,
                "fields": None,
            },
        ),
        Entry(
            "open_benchmark",
            open_benchmark,
            {
                "source": "almanac/iirc",
                "limit": None,
                "exemplars": None,
                "split": None,
                "sample": 1,
                "seed": 0,
                "fields": None,
            },
        ),
        Entry(
            "sweep",
            sweep,
            {"questions": ["Who?"], "method": method, "threshold": [1.0], "output": None},
        ),
        Entry(
            "replace",
            lab.replace,
            {"seed": 0, "model": lm, "retriever": None, "cache": None, "exemplars": None},
        ),
        Entry(
            "method",
            dl.method,
            {"name": "dragin", "when": "rind", "what": "qfs", "variant": "paper"},
        ),
        Entry(
            "method",
            dl.method,
            {"threshold": 1.0, "top_k": 3, "top_n": 5, "max_new_tokens": 9, "nonsense": None},
        ),
        Entry(
            "preset", preset, {"model": "llama2-13b-chat", "dataset": "hotpotqa", "source": "paper"}
        ),
        Entry("Corpus.load", dl.Corpus.load, {"source": [{"text": "a b"}], "fields": None}),
        Entry("Corpus.from_passages", dl.Corpus.from_passages, {"passages": PASSAGES, "name": "x"}),
        Entry("Corpus.build", dl.Corpus.build, {"source": [{"text": "a b"}], "out": "built"}),
        Entry("BM25", dl.BM25, {"corpus": corpus, "k1": 1.2, "b": 0.7, "tie_breaker": 0.1}),
        Entry("BM25.search", dl.BM25(corpus).search, {"query": "Ann", "k": 1}),
        Entry("Tantivy", Tantivy, {"corpus": corpus}),
        Entry("open_retriever", open_retriever, {"spec": "bm25", "corpus": corpus}),
        Entry("Trace.load", dl.Trace.load, {"path": "good.trace"}),
        Entry("Trace.save", trace.save, {"path": "again.trace"}),
        Entry("Trace.diff", trace.diff, {"other": trace}),
        Entry("Runs", dl.Runs, {"records": runs.records}),
        Entry("Runs.load", dl.Runs.load, {"paths": "good"}),
        Entry("Runs.tests", runs.tests, {"against": "wo-rag"}),
        Entry("Runs.where", runs.where, {"expression": "em == 0"}),
        Entry("Runs.table", runs.table, {"compare": None}),
        Entry("table", dl.table, {"number": 2, "runs": "good", "compare": None, "as_model": None}),
        Entry("load_exemplars", load_exemplars, {"source": "hotpotqa"}),
        Entry(
            "PromptTemplate",
            dl.PromptTemplate,
            {"exemplars": (), "layout": "dragin", "instruction": "x"},
        ),
        Entry(
            "when",
            define,
            {"name": "own-score", "threshold": 1.0, "unit": "word", "pool": "max", "needs": ()},
        ),
        Entry("what", lambda **given: dl.what(**given)(lambda place: "a"), {"name": "own-query"}),
        Entry(
            "LanguageModel.load", LanguageModel.load, {"source": "x", "dtype": None, "device": None}
        ),
        Entry(
            "LanguageModel",
            lambda **given: LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level(), **given),
            {
                "layer": "last",
                "heads": None,
                "alternatives": 5,
            },
        ),
        Entry("LanguageModel", LanguageModel, {"model": lm.model, "tokenizer": lm.tokenizer}),
        Entry("score", lm.score, {"prompt": Prompt("Who"), "text": " is it", "hidden": None}),
        Entry("Replay.at", dl.Replay(trace).at, {"threshold": 1.0, "top_n": 3}),
        Entry("heatmap", views.heatmap, {"trace": trace, "step": 1, "source": "draft", "theta": 1}),
        Entry("selections", views.selections, {"trace": trace, "step": 1}),
        Entry("overview", views.overview, {"trace": trace}),
        Entry("compare", views.compare, {"traces": [trace, trace], "labels": ["a", "b"]}),
        Entry("replayed", views.replayed, {"outcome": dl.Replay(trace).at()}),
        Entry("attention", views.attention, {"trace": trace, "step": 1, "head": 0, "lm": None}),
        Entry("views.trace", views.trace, {"source": trace}),
        Entry("trace_text", views.trace_text, {"trace": trace, "width": 80, "color": False}),
        Entry(
            "views.sweep", views.sweep, {"table": swept.table, "paper": False, "measures": ["em"]}
        ),
        Entry("Sweep.plot", swept.plot, {"paper": False}),
        Entry("Runs.plot", runs.plot, {"cost": "retrievals", "quality": "f1"}),
        Entry("Runs.lines", runs.lines, {"dataset": "questions", "name": "wo-rag"}),
        Entry("Runs.cause_finder", runs.cause_finder, {"dataset": "questions"}),
        Entry("Runs.record", runs.record, {"id": "1", "method": "wo-rag", "dataset": None}),
        Entry("Runs.cause", runs.cause, {"id": "1", "method": "wo-rag", "dataset": None}),
        Entry("Replay", dl.Replay, {"trace": trace, "tokenizer": lm.tokenizer}),
        Entry("explore", dl.explore, {"trace": trace}),
        Entry("tune", dl.tune, {"traces": [trace], "lab": lab}),
        Entry("lab.explore", lab.explore, {"question": "Who?"}),
        Entry("browse", dl.browse, {"runs": "good"}),
        Entry("page", save_page, {"path": "a.html", "view": trace, "inline": False}),
        Entry(
            "frontier",
            views.frontier,
            {"table": swept.table, "cost": "retrievals", "quality": "f1", "by": "value"},
        ),
        Entry("Runs.trace", runs.trace, {"id": "1", "method": "wo-rag", "dataset": None}),
        Entry("budget", lab.budget, {"questions": ["Who?"], "retrievals": 0, "method": method}),
        Entry(
            "Recipe",
            lambda **given: repr(Recipe(**given).absolute()),
            {
                "model": None,
                "layer": "last",
                "heads": None,
                "sample": False,
                "retriever": None,
                "corpus": None,
                "searches": True,
                "dtype": None,
                "device": None,
            },
        ),
        Entry(
            "capture",
            capture,
            {
                "model": lm.model,
                "tokenizer": lm.tokenizer,
                "layer": "last",
                "heads": None,
                "alternatives": 5,
                "attention": True,
            },
        ),
        Entry(
            "Call",
            dl.Call,
            {"opens": "[", "closes": "]", "puts_in": None, "stays": True, "puts_before": ""},
        ),
        Entry("Prompt", Prompt, {"text": "a", "spans": {}, "notes": ()}),
        Entry("Trace.attention", trace.attention, {"step": 1, "head": None, "lm": lm}),
        Entry("lab.tune", lab.tune, {"traces": [trace]}),
        Entry("lab.template", lab.template, {"method": method, "asked": None}),
        Entry("almanac.labels", almanac.labels, {"benchmark": "iirc", "split": "test", "limit": 1}),
        Entry("almanac.questions", almanac.questions, {"benchmark": "iirc", "split": "test"}),
        Entry("almanac.exemplars", almanac.exemplars, {"name": "iirc"}),
        Entry("almanac.default_exemplars", almanac.default_exemplars, {"form": "reasoning"}),
        Entry("Elasticsearch", Elasticsearch, {"client": None}),
    ]


def tried(entries: list[Entry], count: int | None) -> Iterator[tuple[Entry, str, Any]]:
    """Each entry with each thing in place of each of its arguments; or so many of these, drawn
    with a fixed seed.
    """
    every = [(entry, name, thing) for entry in entries for name in entry.good for thing in THINGS]
    return iter(every if count is None else random.Random(SEED).sample(every, count))


@pytest.mark.parametrize("count", [100, pytest.param(None, marks=pytest.mark.deep)])
def test_public_entries_take_what_is_meant_or_refuse_by_name(
    entries: list[Entry], count: int | None
) -> None:
    for entry, name, thing in tried(entries, count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaked, said = False, ""
            try:
                entry.call(**entry.good | {name: thing})
            except DraginLabError as error:
                # a file of that name is no address
                there = isinstance(thing, str) and os.path.lexists(thing)
                leaked = SECRET in str(error) and name in DOORS and not there
                said = str(error)
            except Exception as error:
                error.add_note(f"of {entry.name}({name}={thing!r:.60})")
                raise
            assert not leaked, f"{entry.name}({name}={thing!r:.60})"
            assert len(said.splitlines()) <= 3, f"{entry.name}({name}={thing!r:.60}): {said}"


answers = st.recursive(
    st.sampled_from(
        [None, 3, 1.5, "one", "", " ", "half \ud800", 10**400, b"x", math.nan, *PASSAGES]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "title", "text", "score", "more"]), inner, max_size=4
        )
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(answers)
def test_an_answer_of_a_retriever_is_passages_or_refused(answer: Any) -> None:
    try:
        found = as_retriever(lambda query, k: answer).search("Who?", 3)
    except DraginLabError as error:
        said = str(error)
    else:
        said = ""
        assert len(found) <= 3
        assert all(isinstance(one, dl.Passage) and one.text.strip() for one in found)
        assert len({one.id for one in found}) == len(found)
    assert len(said.splitlines()) <= 3


def test_yaml_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exemplars.yaml"
    path.write_text("[" * 3_000)
    with pytest.raises(DraginLabError, match="is not YAML"):
        load_exemplars(path)


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def commands(offline: Path) -> list[list[str]]:
    """Commands that work; each of their words can be exchanged."""
    Path("passages.jsonl").write_text(
        "".join(json.dumps({"id": p.id, "text": p.text}) + "\n" for p in PASSAGES)
    )
    Path("questions.jsonl").write_text('{"question": "Who is Ann?", "answer": "Bo"}\n')
    lm = LanguageModel.load(lm_tiny.PARITY / "almanac-small")
    lab = dl.Lab(lm, dl.Corpus.from_passages(PASSAGES))
    lab.ask("Who is Ann?", "wo-rag", max_new_tokens=3).save("good.trace")
    lab.run(
        [dl.Question("1", "Who is Ann?", ("Bo",))],
        ["wo-rag", "sr-rag"],
        output="good",
        progress=False,
    )
    small = str(lm_tiny.PARITY / "almanac-small")
    model = [
        "--model",
        small,
        *["--set", "device=cpu", "--set", "dtype=float32", "--set", "layer=last"],
    ]
    corpus = ["--corpus", "passages.jsonl", "--retriever", "bm25"]
    method = [
        "--method",
        "dragin",
        "--set",
        "variant=paper",
        "--set",
        "top_k=2",
        "--set",
        "max_new_tokens=3",
    ]
    asked = ["--dataset", "questions.jsonl", "--set", "fields=question=question", "--limit", "1"]
    return [
        [
            "ask",
            "Who is Ann?",
            *method,
            *model,
            *corpus,
            "--set",
            "threshold=1",
            "--set",
            "heads=[0,1]",
        ],
        [
            "ask",
            "Who?",
            *method,
            *model,
            *corpus,
            "--set",
            "when=rind@1",
            "--set",
            "what=qfs",
            "--gold",
            "a",
        ],
        [
            "ask",
            "Who?",
            *method,
            *model,
            *corpus,
            "--save",
            "x.trace",
            "--html",
            "x.html",
            "--exemplars",
            "hotpotqa",
        ],
        [
            "run",
            *method,
            *model,
            *corpus,
            *asked,
            "--output",
            "out",
            "--batch-size",
            "1",
            "--set",
            "threshold=1,2",
        ],
        ["table", "good", "--compare", "wo-rag", "--format", "text"],
        ["table", "2"],
        ["corpus", "build", "passages.jsonl", "--output", "built", "--fields", "id=id,text=text"],
        ["doctor", *model],
    ]


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.deep)])
def test_commands_end_with_a_line_and_no_traceback(
    commands: list[list[str]], command: Command, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def unforeseen(error: Exception) -> str:
        raise error

    monkeypatch.setattr(cli, "describe_failure", unforeseen)
    places = [(line, at) for line in commands for at in range(len(line))]
    assert [line for line in commands if command(*line).code != cli.DONE] == []
    draw = random.Random(SEED)
    for _ in range(count):
        line, at = draw.choice(places)
        given = [*line[:at], draw.choice(TEXTS), *line[at + 1 :]]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # as the command itself does
        try:
            ran = command(*given)
        except Exception as error:
            error.add_note(f"of dragin-lab {' '.join(given)!r:.300}")
            raise
        assert "Traceback" not in ran.err
        door = given[at - 1] in {f"--{name}" for name in DOORS}
        assert not door or SECRET not in ran.out + ran.err, given
        assert ran.code == cli.DONE or max(map(len, ran.err.splitlines())) < 2 * cli.LONGEST, given
        assert ran.code == cli.DONE or "error: " in ran.err or "FAIL" in ran.out, given
