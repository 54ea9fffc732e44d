"""Worked examples from a file."""

from __future__ import annotations

from pathlib import Path

from dragin_lab.errors import SettingError
from dragin_lab.prompts import Exemplar


def load_exemplars(path: str | Path) -> tuple[Exemplar, ...]:
    """Exemplars from a YAML (or JSON) list of mappings with ``question``, ``rationale`` and ``answer``, all texts.

    Raises ``SettingError`` naming the file, the entry and the field that is wrong.
    """
    import yaml

    try:
        rows = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or error
        raise SettingError(f"{path}: cannot be read ({why}); give a YAML file of exemplars") from None
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: byte {error.start + 1} is not UTF-8; give a YAML file of exemplars") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise SettingError(f"{path}: is not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(rows, list):
        raise SettingError(f"{path}: holds no list; write '- question: …' with rationale and answer below it")
    names = ("question", "rationale", "answer")
    for number, row in enumerate(rows, 1):
        fields = row if isinstance(row, dict) else {}
        wrong = [n for n in names if not isinstance(fields.get(n), str) or not fields[n].strip()]
        if wrong:
            raise SettingError(
                f"{path}: exemplar {number} has no text {', '.join(map(repr, wrong))} (quote numbers and yes/no)"
            )
    return tuple(Exemplar(**{n: row[n] for n in names}) for row in rows)
