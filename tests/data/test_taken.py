"""Data as its makers give it: streams, tables of other libraries, headers of unknown names, forms
of letters, addresses and folders of what was deleted.
"""

from __future__ import annotations

import datetime
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dragin_lab as dl
from dragin_lab.core.answers import score_answer
from dragin_lab.data.exemplars import load_exemplars
from dragin_lab.data.fetch import fetch
from dragin_lab.engines.sources import loading_errors
from dragin_lab.errors import DataError, DraginLabError, ModelError, SettingError
from dragin_lab.files import is_set_aside, not_saved
from dragin_lab.retrieval.doors import as_retriever

ONE: dict[str, list[Any]] = {"question": ["Who?"], "answer": ["Bo"]}


def rows() -> Iterator[dict[str, str]]:
    """Rows without an end."""
    for number in itertools.count():
        yield {"id": str(number), "question": f"Who is {number}?", "answer": "Bo"}


@pytest.mark.parametrize("kind", ["rows", "texts", "stream"])
def test_a_limit_reads_no_further(kind: str, tmp_path: Path) -> None:
    lab = dl.Lab()
    texts = (row["question"] for row in rows())
    if kind == "texts":
        asked = lab.run(texts, "wo-rag", limit=2, output=tmp_path, progress=False)
        assert len(asked.records[0].predictions) == 2
        return
    source: Any = rows()
    if kind == "stream":
        source = datasets.IterableDataset.from_generator(rows)
    assert [one.id for one in dl.benchmark(source, limit=3).questions] == ["0", "1", "2"]


@pytest.mark.parametrize("split", ["", "#train"])
def test_a_limit_fetches_no_more_of_a_data_set_of_the_hub(split: str, tmp_path: Path) -> None:
    line = '{"id": "%s", "question": "Who?", "answer": "Bo"}\n'
    (tmp_path / "train-0.jsonl").write_text(line % 1 + line % 2)
    (tmp_path / "train-1.jsonl").write_text("{")  # which nobody can read
    source = f"hub:{tmp_path}{split}"
    assert [one.id for one in dl.benchmark(source, limit=2).questions] == ["1", "2"]
    with pytest.raises(DataError, match="cannot be loaded by datasets"):
        dl.benchmark(source)


@pytest.mark.parametrize(
    "source",
    [
        pa.table(ONE),
        pa.table(ONE).to_batches()[0],
        datasets.DatasetDict(test=datasets.Dataset.from_dict(ONE)),
        [dl.Question("1", "Who?", ("Bo",))],
        pd.DataFrame(ONE | {"id": [1.0]}),
    ],
    ids=["table", "batch", "splits", "questions", "float id"],
)
def test_tables_of_other_libraries_are_rows(source: Any) -> None:
    assert dl.benchmark(source).questions == (dl.Question("1", "Who?", ("Bo",)),)


def test_other_forms_of_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "q.ndjson").write_text('{"question": "Who?", "answer": "Bo"}\n')
    assert len(dl.benchmark(tmp_path / "q.ndjson").questions) == 1
    for born in (datetime.date(1990, 1, 2), pd.Timestamp(1990, 1, 2), np.datetime64("1990-01-02")):
        asked = dl.benchmark([{"question": "When?", "answer": born}])
        assert asked.questions[0].golds == ("1990-01-02",)
    corpus = dl.Corpus.load([dl.Passage("7", "Ulm", "Ulm is a city.")])
    assert corpus.get("7").text == "Ulm is a city."
    two = datasets.DatasetDict(a=datasets.Dataset.from_dict(ONE), b=datasets.Dataset.from_dict(ONE))
    with pytest.raises(DataError, match="holds the splits a, b"):
        dl.benchmark(two)


HEADED = "Nr.;Frage;Antwort\n1;Wo wurde Bo geboren?;Ulm\n2;Wer ist Li?;ein Maler\n"
BARE = "1;Wo wurde Bo geboren?;Ulm\n2;Wer ist Li?;ein Maler\n"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("text", "has", "fields"),
    [
        (HEADED, "Nr., Frage, Antwort.*header=no", "question=Frage,answer=Antwort"),
        (BARE, "1, 2, 3.*header=yes", "question=2,answer=3"),
    ],
    ids=["a header", "none"],
)
def test_a_header_of_unknown_names_is_told_from_data(
    tmp_path: Path, text: str, has: str, fields: str
) -> None:
    file = tmp_path / "q.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=f"its fields are {has}"):
        dl.benchmark(file)
    for said in (fields, "question=2,answer=3"):
        texts = [one.text for one in dl.benchmark(file, fields=said).questions]
        assert texts == ["Wo wurde Bo geboren?", "Wer ist Li?"]


FORMS = [("１９９０", "1990"), ("ＵＳＢ", "USB"), ("ｱﾆﾒ", "アニメ"), ("ﬁlm", "film"), ("Ⅳ", "IV")]


@pytest.mark.parametrize(("a", "b"), FORMS)
def test_forms_of_width_and_compatibility_are_one(a: str, b: str) -> None:
    assert score_answer(a, [b])["em"] == score_answer(b, [a])["em"] == 1.0
    assert score_answer(a, [b], released=True)["em"] == 0.0
    for written, asked in ((a, b), (b, a)):
        index = dl.BM25(dl.Corpus.load([{"text": f"It says {written} here."}, {"text": "nothing"}]))
        assert [one.id for one in index.search(asked, 2)] == ["1"]


@pytest.mark.parametrize("scheme", ["s3://", "gs://", "hdfs://", "abfss://", "file:///", "s3:/"])
def test_an_address_is_no_folder(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lab, at = dl.Lab(), f"{scheme}bucket/a"
    trace = lab.ask("Who?", "wo-rag", max_new_tokens=2)
    calls: list[Any] = [
        lambda: lab.run(["Who?"], "wo-rag", output=at, progress=False),
        lambda: trace.save(at),
        lambda: dl.page(at, trace),
        lambda: dl.Corpus.load(at),
        lambda: dl.Runs.load(at),
    ]
    for call in calls:
        with pytest.raises(DraginLabError, match="is an address"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_what_was_deleted_is_no_run(tmp_path: Path) -> None:
    lab = dl.Lab()
    for place in ("runs", ".Trash-1000/files/old", ".snapshot/a", "#recycle/b"):
        lab.run(["Who?"], "wo-rag", output=tmp_path / place, limit=1, progress=False)
    assert len(dl.Runs.load(tmp_path).records) == 1
    assert len(dl.Runs.load(tmp_path / ".snapshot").records) == 1  # asked for by name
    assert not is_set_aside("runs")


@pytest.mark.parametrize(
    "name",
    ["alt_answers", "AlternateAnswers", "other_names", "aka", "altLabel", "correct_answers"],
)
def test_a_column_of_a_later_row_is_named_too(name: str) -> None:
    asked = [{"question": "Who?", "answer": "Bo", "id": "1"}]
    asked.append({"question": "When?", "answer": "Then", "id": "2", name: ["At that time"]})
    with pytest.warns(UserWarning, match=f"row 2: {name} may hold aliases"):
        dl.benchmark(asked)


@pytest.mark.parametrize("name", ["mother_name", "incorrect_answers", "question_variants"])
def test_a_column_of_something_else_is_not_named(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dl.benchmark([{"question": "Who?", "answer": "Bo", name: ["Bo Ek"]}])


def test_of_two_columns_of_aliases_the_one_that_is_not_read_is_named() -> None:
    row = {"question": "Who?", "answer": "Bo", "aliases": ["B."], "answer_aliases": ["Bo Ek"]}
    with pytest.warns(UserWarning, match="row 1: aliases may hold aliases"):
        (asked,) = dl.benchmark([row]).questions
    assert asked.golds == ("Bo", "Bo Ek")


def test_a_column_that_looks_like_aliases_is_named() -> None:
    asked = [ONE | {"question": "Who?", "answer": "Bo", "answer_synonyms": ["B."]}]
    with pytest.warns(UserWarning, match="answer_synonyms may hold aliases") as caught:
        dl.benchmark(asked)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (one,) = dl.benchmark(asked, fields="aliases=answer_synonyms").questions
    assert one.golds == ("Bo", "B.")


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    import torch

    found = [
        {"id": np.int64(3), "text": "a", "score": np.float32(0.5)},
        {"id": np.float64(4.0), "text": "b", "score": torch.tensor(0.25)},
        {"id": torch.tensor(5), "text": "c", "score": torch.tensor([0.125])},
    ]
    given = as_retriever(lambda query, k: found).search("Who?", 3)
    assert [(one.id, one.score) for one in given] == [("3", 0.5), ("4", 0.25), ("5", 0.125)]
    assert dl.Passage("1", "", "a", torch.tensor(0.5)).score == 0.5  # type: ignore[arg-type]


def test_what_a_retriever_says_of_itself_may_hold_numbers_of_numpy() -> None:
    class Mine:
        def search(self, query: str, k: int) -> list[str]:
            return ["a"]

        def provenance(self) -> dict[str, Any]:
            return {"kind": "mine", "k1": np.float32(0.5), "passages": np.int64(3)}

    assert as_retriever(Mine()).provenance() == {"kind": "mine", "k1": 0.5, "passages": 3}


def test_what_cannot_be_kept_in_the_users_cache_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    denied = PermissionError(13, "Permission denied")
    assert "set XDG_CACHE_HOME" in not_saved(tmp_path / "dragin_lab" / "a", denied)
    assert "set XDG_CACHE_HOME" in not_saved(tmp_path / "a", denied)  # another library's
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nobody" / "here"))
    assert "set XDG_CACHE_HOME" in not_saved(tmp_path / "nobody", denied)
    for place in (tmp_path, tmp_path / "a"):
        assert "set XDG_CACHE_HOME" not in not_saved(place, denied)


def test_a_cache_that_cannot_be_opened_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for need in (lambda: fetch("exemplars"), lambda: load_exemplars("published:hotpotqa")):
        with pytest.raises(SettingError, match=r"cannot be opened .*; set XDG_CACHE_HOME"):
            need()


def test_what_another_library_cannot_keep_in_its_cache_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    denied = PermissionError(13, "Permission denied", str(tmp_path / "huggingface"))

    def refuse(*_: Any, **__: Any) -> None:
        raise denied

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match="set XDG_CACHE_HOME"):
        dl.benchmark("hub:me/mine")
    with (
        pytest.raises(ModelError, match="set XDG_CACHE_HOME"),
        loading_errors("me/mine", "causal language model"),
    ):
        raise OSError("cannot be downloaded") from denied
