"""Almanac: the embedded world. Its model, passages, questions, labels and exemplars, read without
torch.

Each part of the world is a file of compressed JSON lines; the model's card names the commit that
has the scripts. `manifest.json` names their seed and, for each, the number of lines and the SHA-256
of the uncompressed bytes, which are compared whenever a file is read.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from dragin_lab.almanac.facts import Labelled
from dragin_lab.checks import choice, count, shown
from dragin_lab.core.prompts import Exemplar
from dragin_lab.errors import DataError, SettingError
from dragin_lab.trace.trace import Passage, Question

WORLD = Path(__file__).parent / "world"
#: Worked examples in the embedded model's default prompt. The paper uses 6 to 8; this model was
#: trained on 0 to 2.
DEFAULT_EXEMPLARS = 2


def embedded_model_path() -> Path:
    """The folder of the embedded model, for ``transformers``."""
    return Path(__file__).parent / "model"


def passages() -> list[Passage]:
    """The encyclopedia's passages, sorted by title; ids from "1"."""
    return [Passage(**row) for row in _read_rows("passages")]


def questions(benchmark: str, split: str = "test") -> list[Question]:
    """The questions of a benchmark that have an answer, in the order of the original's format.

    Raises ``SettingError`` for a benchmark or split that does not exist.
    """
    rows = _select_rows(benchmark, split, "questions")
    return [Question(row["id"], row["question"], tuple(row["golds"])) for row in rows]


def labels(benchmark: str, split: str = "test", limit: int | None = None) -> list[Labelled]:
    """The gold reasoning of a benchmark's questions with the label of each fact in it; errors as
    for ``questions``.
    """
    rows = _select_rows(benchmark, split, "labels")[
        : None if limit is None else count("limit", limit)
    ]
    return msgspec.convert([row | {"id": row["qid"]} for row in rows], list[Labelled])


def exemplars(name: str) -> tuple[Exemplar, ...]:
    """The worked examples of a benchmark, or those of "self-ask" or "flare-instruct".

    Raises ``SettingError`` for a name that does not exist.
    """
    sets = _read_exemplars()
    if not isinstance(name, str) or name not in sets:
        raise SettingError(f"Almanac has no exemplars {shown(name)}; it has {', '.join(sets)}")
    return sets[name]


def default_exemplars(form: str = "reasoning") -> tuple[Exemplar, ...]:
    """The worked examples that stand in the embedded model's prompts, in a form of answers
    (``answers.FORMS``).
    """
    sets = {"reasoning": "2wikimultihopqa", "search": "flare-instruct", "self-ask": "self-ask"}
    return exemplars(sets[choice("form", form, sets)])[:DEFAULT_EXEMPLARS]


def exemplars_by_form() -> dict[str, tuple[Exemplar, ...]]:
    """What the embedded model brings: ``default_exemplars`` of each form."""
    return {form: default_exemplars(form) for form in ("reasoning", "search", "self-ask")}


def wordings() -> dict[str, tuple[str, ...]]:
    """For each relation the sentences that state it in Almanac's reasoning; {s} the subject, {v}
    the value.
    """
    return {row["relation"]: tuple(row["sentences"]) for row in _read_rows("wordings")}


def _select_rows(benchmark: str, split: str, file: str) -> list[dict[str, Any]]:
    rows = _read_rows(file)
    for column, name in (("benchmark", benchmark), ("split", split)):
        names = dict.fromkeys(row[column] for row in rows)
        if not isinstance(name, str) or name not in names:
            raise SettingError(f"Almanac has no {column} {shown(name)}; it has {', '.join(names)}")
    return [row for row in rows if (row["benchmark"], row["split"]) == (benchmark, split)]


@cache
def _read_exemplars() -> dict[str, tuple[Exemplar, ...]]:
    return {
        row["set"]: tuple(Exemplar(**fields) for fields in row["exemplars"])
        for row in _read_rows("exemplars")
    }


@cache
def _read_rows(name: str) -> list[dict[str, Any]]:
    path = WORLD / f"{name}.jsonl.xz"
    try:
        manifest = json.loads((WORLD / "manifest.json").read_text(encoding="utf-8"))
        data = lzma.decompress(path.read_bytes())
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise DataError(f"{path} cannot be read ({error}); install dragin_lab again") from None
    checksum = sha256(data).hexdigest()
    wanted = manifest["files"][path.name]["sha256"]
    if checksum != wanted:
        raise DataError(
            f"{path} is damaged: its lines have the SHA-256 {checksum[:12]}…, the manifest has"
            f" {wanted[:12]}…; install dragin_lab again"
        )
    return [json.loads(line) for line in data.splitlines()]
