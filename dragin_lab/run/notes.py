"""Marks and notes that people put on the questions of a run, kept in its directory as ``notes.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.run.lines import TEXT, check, of_type, parse
from dragin_lab.run.rundir import RunError

NOTES = "notes.json"
_RULES = {"mark": of_type(bool, "true or false"), "note": TEXT}

Note = dict[str, Any]


def read_notes(folder: Path) -> dict[str, Note]:
    """Question id -> ``mark`` (bool) and ``note`` (text); nothing where nobody wrote any.

    Raises ``RunError`` for a file that cannot be read.
    """
    path = folder / NOTES
    try:
        found = parse(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it is not a group of entries")
        for note in found.values():
            check(note, _RULES)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error}); mend it, or move it away") from None
    return found


def read_saved(path: str | Path) -> list[tuple[str, str, bool, str]]:
    """The notes that an explorer's page saved, as (data set, question id, mark, note).

    Raises ``RunError`` for a file that is not one.
    """
    try:
        found = parse(as_path(path, RunError).read_bytes())
        for notes in found.values():
            for note in notes.values():
                check(note, _RULES)
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{path}: not the notes that an explorer's page saves ({error})") from None
    return [(dataset, qid, one["mark"], one["note"]) for dataset, of in found.items() for qid, one in of.items()]


def write_notes(folder: Path, notes: Mapping[str, Note]) -> None:
    """Add notes to those of a run directory; one without mark and text is taken out."""
    kept = {qid: note for qid, note in (read_notes(folder) | dict(notes)).items() if note["mark"] or note["note"]}
    text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    try:
        write_whole(folder / NOTES, text.encode())
    except OSError as error:
        raise RunError(not_saved(folder / NOTES, error)) from error
