"""Almanac: the embedded world. Its model, passages, exemplars and questions, found without torch."""

from __future__ import annotations

import json
from pathlib import Path

from dragin_lab.prompts import Exemplar
from dragin_lab.trace import Question

_HERE = Path(__file__).parent / "embedded"


def embedded_model_path() -> Path:
    """The folder of the embedded model, for ``transformers``."""
    return _HERE / "model"


def embedded_corpus_path() -> Path:
    """The embedded passages, as JSON lines."""
    return _HERE / "passages.jsonl"


def default_exemplars() -> tuple[Exemplar, ...]:
    """The worked examples that stand in the embedded model's prompts; two, as its context is short."""
    return tuple(Exemplar(**row) for row in json.loads((_HERE / "exemplars.json").read_text(encoding="utf-8")))


def demo_questions() -> list[Question]:
    """A few questions on the embedded passages, with their answers."""
    lines = (_HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [Question(row["id"], row["question"], tuple(row["golds"])) for row in map(json.loads, lines)]
