"""Worked examples (this package's own sets, the published ones, a file's), and the prompt of a
model for a method.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec

from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.data.tabular import Filled, convert_record
from dragin_lab.errors import SettingError
from dragin_lab.files import as_path, user_cache
from dragin_lab.text import compose, fold_letters

#: Examples in a prompt of each benchmark (reference-behaviour §6, "Data").
SHOTS = {"2wikimultihopqa": 6, "hotpotqa": 8, "strategyqa": 6, "iirc": 8}
#: Precedes a benchmark's name to mean the set published with the paper.
PUBLISHED = "published:"
#: This package's own sets, one file per benchmark.
OWN_SETS = Path(__file__).parent / "exemplar_sets"
#: The forms of answers that must be shown (``answers.FORMS``), which have a file of examples for
#: any model there too.
SHOWN_FORMS = ("search", "self-ask")


def load_exemplars(source: str | Path) -> tuple[Exemplar, ...]:
    """Exemplars by the name of a benchmark, or from a file.

    By its name the set of this package; ``published:NAME`` is the set of the authors' released
    code, which ``dragin-lab data fetch exemplars`` puts in the user's cache. A file is a YAML (or
    JSON) list of mappings with ``question``, ``rationale`` and ``answer``, all texts.

    Raises ``SettingError`` naming the file, the entry and the field that is wrong.
    """
    path = _find_file(source)
    return _read_rows(path, _read_yaml(path))


def load_template(form: str) -> PromptTemplate:
    """This package's prompt that shows a form: its exemplars, and where it has them preamble and
    instruction.
    """
    path = OWN_SETS / f"{form}.yaml"
    rows = _read_yaml(path)
    parts = rows if isinstance(rows, dict) else {"exemplars": rows}
    return PromptTemplate(form=form, **parts | {"exemplars": _read_rows(path, parts["exemplars"])})


def _read_yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"{path}: cannot be read ({error.strerror or error}); give a YAML file of exemplars, or"
            f" a name: {', '.join(SHOTS)}"
        ) from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: other bytes, a date that does not exist
        raise SettingError(
            f"{path}: is not YAML in UTF-8 ({' '.join(str(error).split())[:200]})"
        ) from None


class _Row(msgspec.Struct):
    question: Filled
    rationale: Filled
    answer: Filled


def _read_rows(path: Path, rows: Any) -> tuple[Exemplar, ...]:
    if not isinstance(rows, list):
        raise SettingError(
            f"{path}: holds no list; write '- question: …' with rationale and answer below it"
        )
    remedy = " (quote numbers and yes/no)"
    places = ((f"{path}: exemplar {number}", row) for number, row in enumerate(rows, 1))
    entries = [convert_record(place, row, _Row, SettingError, remedy) for place, row in places]
    return tuple(Exemplar(entry.question, entry.rationale, entry.answer) for entry in entries)


def published_file(name: str) -> Path:
    """The file of a benchmark's published set, once it is fetched."""
    return user_cache() / "exemplars" / "published" / f"{name}.yaml"


def _find_file(source: str | Path) -> Path:
    name = str(source)
    if name.startswith(PUBLISHED):
        kind = name.removeprefix(PUBLISHED)
        if kind not in SHOTS:
            raise SettingError(f"exemplars {name!r}: {kind!r} is none of {', '.join(SHOTS)}")
        path = published_file(kind)
        if not path.is_file():
            raise SettingError(
                f"exemplars {name!r} are not in {path.parent}; run 'dragin-lab data fetch"
                " exemplars' first"
            )
        return path
    if name in SHOTS and not Path(name).is_file():
        return OWN_SETS / f"{name}.yaml"
    return as_path(source)


def among_exemplars(questions: Iterable[tuple[str, str]], exemplars: Iterable[str]) -> list[str]:
    """The ids of the questions, given as (id, text), that are asked in worked examples too,
    however they are spelt.
    """

    def letters(text: str) -> str:
        plain = compose(fold_letters(unescape(text)).casefold())
        return "".join(sign for sign in plain if unicodedata.category(sign)[0] in "LMN")

    asked = {letters(text) for text in exemplars} - {""}
    return [qid for qid, text in questions if letters(text) in asked]


def say_among(ids: Sequence[object]) -> str:
    """That these questions stand among the worked examples, in a line."""
    are = "question is" if len(ids) == 1 else "questions are"
    return f"{len(ids)} {are} among the worked examples, with the answer"
