"""What pandas, csv, json or datasets wrote is read again as it was, no character lost, or is
refused by a sentence.
"""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from given import foreign_texts, some
from hypothesis import given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.data.datasets import load_questions
from dragin_lab.errors import DraginLabError

Rows = list[dict[str, str]]


def by_csv(rows: Rows, path: Path, **how: Any) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), **how)
        writer.writeheader()
        writer.writerows(rows)
    return path


def by_json_lines(rows: Rows, path: Path) -> Path:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def by_json(rows: Rows, path: Path) -> Path:
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


def by_pandas(rows: Rows, path: Path, how: str, **options: Any) -> Path:
    getattr(pd.DataFrame(rows), how)(path, **options)
    return path


def by_datasets(rows: Rows, path: Path) -> Path:
    hub = pytest.importorskip("datasets")
    hub.disable_progress_bars()
    hub.Dataset.from_list(rows).save_to_disk(str(path))
    return path


#: Who writes, and what the file is called.
WRITERS: dict[str, tuple[Callable[[Rows, Path], Path], str]] = {
    "csv": (by_csv, "a.csv"),
    "csv, tabs": (lambda rows, path: by_csv(rows, path, delimiter="\t"), "a.tsv"),
    "csv, all quoted": (lambda rows, path: by_csv(rows, path, quoting=csv.QUOTE_ALL), "a.csv"),
    "json lines": (by_json_lines, "a.jsonl"),
    "json": (by_json, "a.json"),
    "pandas, csv": (lambda rows, path: by_pandas(rows, path, "to_csv", index=False), "a.csv"),
    "pandas, gz": (lambda rows, path: by_pandas(rows, path, "to_csv", index=False), "a.csv.gz"),
    "pandas, json": (
        lambda rows, path: by_pandas(rows, path, "to_json", orient="records", lines=True),
        "a.jsonl",
    ),
    "pandas, parquet": (lambda rows, path: by_pandas(rows, path, "to_parquet"), "a.parquet"),
    "datasets": (by_datasets, "a"),
}
rows_of = {
    kind: st.lists(
        st.fixed_dictionaries(dict.fromkeys(names, foreign_texts)), min_size=1, max_size=4
    )
    for kind, names in {"questions": ("question", "answer"), "passages": ("title", "text")}.items()
}


def plain(text: str) -> bool:
    """Whether no list or mapping is written in a text."""
    return not text.startswith(("[", "(", "{"))


@pytest.mark.parametrize("writer", WRITERS)
@some(6)
@given(asked=rows_of["questions"], found=rows_of["passages"])
def test_what_was_written_is_read(
    writer: str, asked: Rows, found: Rows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write, name = WRITERS[writer]
    asked = [{"id": f"q{i}"} | row for i, row in enumerate(asked) if plain(row["answer"])] or [
        {"id": "q0", "question": "Who?", "answer": "Li"}
    ]
    found = [{"id": f"p{i}"} | row for i, row in enumerate(found)]
    folder = tmp_path_factory.mktemp("read")
    (folder / "found").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            questions = load_questions(write(asked, folder / name))
            assert [(one.id, one.text, one.golds) for one in questions] == [
                (row["id"], row["question"], (row["answer"],)) for row in asked
            ]
            corpus = dl.Corpus.load(write(found, folder / "found" / name))
            assert [(one.id, one.title, one.text) for one in corpus] == [
                (row["id"], row["title"], row["text"]) for row in found
            ]
        except DraginLabError as error:
            said = str(error)
        else:
            said = ""
    assert len(said.splitlines()) <= 3
