"""The rows of ``.json`` files: a list of objects, one object a line, or the nested forms of
SQuAD and TriviaQA.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dragin_lab.errors import DataError

_FORMS = "give a list of objects, one object a line, or SQuAD's or TriviaQA's own file"
_HEAD = 1 << 20  # characters


def read_objects(path: Path) -> Iterator[Any]:
    """The rows of a file, in order.

    SQuAD's are the questions (``qas``) of all paragraphs; TriviaQA's fields get the usual names,
    question_id for QuestionId. A file of a single object has one row.

    Raises ``DataError`` where it holds no rows, and what ``json`` raises.
    """
    text = path.read_text(encoding="utf-8-sig")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data" or not text.lstrip().startswith("{"):
            raise
        whole = [json.loads(line) for line in text.split("\n") if line.strip()]
    if isinstance(whole, Mapping):  # a single object is a row
        whole = next((value for name, value in whole.items() if name.lower() == "data"), [whole])
    if not isinstance(whole, list):
        raise DataError(f"{path}: holds {str(whole)[:40]!r}, which is no list of rows; {_FORMS}")
    for row in whole:
        match row:
            case {"paragraphs": list(paragraphs)}:  # of SQuAD
                yield from _list_questions(paragraphs)
            case {"Question": _}:  # of TriviaQA
                yield {
                    re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): value
                    for name, value in row.items()
                }
            case _:
                yield row


def _list_questions(paragraphs: Iterable[Any]) -> Iterator[Any]:
    for paragraph in paragraphs:
        match paragraph:
            case {"qas": list(questions)}:
                yield from questions
            case _:
                raise ValueError(
                    f"the paragraph {str(paragraph)[:60]!r} has no list of questions, qas"
                )


def first_fields(path: Path) -> frozenset[str]:
    """The fields of the first object of a file's list; none where it holds no list, or another
    beginning.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        begin = re.match(r"\s*\[\s*(?=\{)", head := file.read(_HEAD))
    try:
        return frozenset(json.JSONDecoder().raw_decode(head, begin.end())[0] if begin else ())
    except (ValueError, RecursionError):
        return frozenset()
