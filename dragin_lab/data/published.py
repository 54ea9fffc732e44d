"""The exemplars published with the paper, read from the source file that holds them, which is never run.

In ``src/data.py`` of oneal2000/DRAGIN every data set is a class with a list ``examplars`` of mappings: ``question``,
``cot`` (a text, or several in order), ``answer``. A prompt takes the first of them, as many as the benchmark has shots
(``exemplars.SHOTS``).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragin_lab.checks import Filled, convert_record
from dragin_lab.core.prompts import Exemplar
from dragin_lab.data.download import WrongFileError
from dragin_lab.data.exemplars import SHOTS

CLASSES = {
    "2wikimultihopqa": "WikiMultiHopQA",
    "hotpotqa": "HotpotQA",
    "strategyqa": "StrategyQA",
    "iirc": "IIRC",
}
LIST = "examplars"


def read_published(path: Path) -> dict[str, tuple[Exemplar, ...]]:
    """The exemplars of each benchmark, as many as its prompt takes.

    Raises:
        WrongFileError: the file, class or entry that is not as described above.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # ValueError: not UTF-8, or a NUL in it
        raise WrongFileError(
            f"{path}: is not the source file that holds the prompts ({error}); give it with --url"
        ) from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        name: _read_class(f"{path}, class {known}", classes.get(known), SHOTS[name]) for name, known in CLASSES.items()
    }


def to_yaml(exemplars: Sequence[Exemplar], source: str) -> str:
    """Exemplars as ``load_exemplars`` reads them, with a line on where they come from."""
    import yaml

    rows = [{"question": e.question, "rationale": e.rationale, "answer": e.answer} for e in exemplars]
    return f"# Read out of {source}.\n" + yaml.safe_dump(rows, allow_unicode=True, sort_keys=False, width=110)


def _read_class(where: str, node: ast.ClassDef | None, count: int) -> tuple[Exemplar, ...]:
    if node is None:
        raise WrongFileError(f"{where}: is not there; give the address of the source file that holds it with --url")
    values = [
        statement.value
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name) and target.id == LIST and statement.value is not None
    ]
    try:
        rows = ast.literal_eval(values[-1]) if values else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise WrongFileError(f"{where}: {LIST} is not written out as plain values ({error})") from None
    if not isinstance(rows, list) or len(rows) < count:
        held = f"{len(rows)} of them" if isinstance(rows, list) else "no list"
        raise WrongFileError(f"{where}: {LIST} holds {held}, and {count} are needed; give another address with --url")
    return tuple(_convert_entry(f"{where}, {LIST} {number}", row) for number, row in enumerate(rows[:count], 1))


class _Entry(msgspec.Struct):
    question: Filled
    cot: Filled | list[str]
    answer: Filled


def _convert_entry(where: str, entry: Any) -> Exemplar:
    fields = convert_record(where, entry, _Entry, WrongFileError)
    return Exemplar(fields.question, fields.cot if isinstance(fields.cot, str) else "".join(fields.cot), fields.answer)
