"""Run directories as a benchmark run writes them, made without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dragin_lab as dl
from dragin_lab.run.rundir import FORMAT, Line, encode_lines


def write_run(
    root: Path,
    method: str = "dragin",
    dataset: str = "almanac/hotpotqa",
    em: Sequence[float | None] = (1.0, 0.0, 1.0, 1.0),
    *,
    asked: int | None = None,
    model: str = "almanac",
    retriever: str | None = "bm25",
    label: str | None = None,
    retrievals: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    limit: int | None = None,
    **settings: Any,
) -> Path:
    """``root/<dataset>/<label>`` with a line for each of ``em``; None is an episode that failed.

    f1 is halfway between em and 1, precision 0.5, recall 0.75; ``asked`` is how many questions the
    run is about.
    """
    made = dl.method(method, **settings)
    changed = "".join(f"-{key}={value}" for key, value in settings.items())
    folder = root / dataset / (label or method + changed)
    folder.mkdir(parents=True)
    config = {
        "format": FORMAT,
        "method": made.settings,
        "model": {"model": model, "weights_sha256": "0" * 64},
        "retriever": None
        if retriever is None or not made.retrieves
        else {"kind": retriever, "corpus": "psgs_w100"},
        "template": {
            "exemplars": [{}, {}],
            "instruction": "",
            "layout": "dragin",
            "answer_rule": "hotpotqa",
        },
        "dataset": {
            "name": dataset,
            "split": "test",
            "questions": asked or len(em),
            "fingerprint": dataset,
        },
        "seed": 0,
        "limit": limit,
        "versions": {},
    }
    write_config(folder, config)
    lines: list[Line] = []
    for at, right in enumerate(em):
        failed = right is None
        lines.append(
            {
                "id": f"q{at}",
                "question": "Who?",
                "text": " It is.",
                "answer": "",
                "readable": False,
                "gold": ["Bo"],
                "em": right,
                "f1": None if right is None else (right + 1) / 2,
                "precision": None if failed else 0.5,
                "recall": None if failed else 0.75,
                "retrievals": at % 3 if retrievals is None else retrievals[at],
                "queries": [],
                "passages": [],
                "drafts": 1,
                "tokens": 40 + at if tokens is None else tokens[at],
                "ended": "error" if failed else "answered",
            }
            | ({"error": "gone"} if failed else {})
        )
    (folder / "predictions.jsonl").write_bytes(encode_lines(lines))
    return folder


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """``run.json``, as it is not written by a run."""
    (folder / "run.json").write_text(json.dumps(config), encoding="utf-8")


def read_config(folder: Path) -> dict[str, Any]:
    """``run.json`` as plain data."""
    config: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return config


def change_line(folder: Path, at: int, **entries: Any) -> None:
    """Change entries of a prediction line of a run; ``...`` takes one out."""
    path = folder / "predictions.jsonl"
    lines = [json.loads(raw) for raw in path.read_bytes().splitlines()]
    lines[at] = {key: value for key, value in (lines[at] | entries).items() if value is not ...}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
