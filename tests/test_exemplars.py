"""Worked examples from a file: what is read, and what is refused with the entry that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragin_lab.errors import SettingError
from dragin_lab.exemplars import load_exemplars
from dragin_lab.prompts import Exemplar

GOOD = "- question: Is ice cold?\n  rationale: Ice is frozen.\n  answer: 'yes'\n"


@pytest.mark.parametrize(
    "text", [GOOD, '[{"question": "Is ice cold?", "rationale": "Ice is frozen.", "answer": "yes", "more": 1}]']
)
def test_yaml_and_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_exemplars(path) == (Exemplar("Is ice cold?", "Ice is frozen.", "yes"),)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no list"),
        (b"question: a", "holds no list"),
        (b"- [", "is not YAML"),
        (b"- 2020-13-45", "is not YAML"),
        (b"- caf\xe9", "byte 6 is not UTF-8"),
        (GOOD.encode() + b"- question: a\n  rationale: b\n  answer: yes\n", "exemplar 2 has no text 'answer'"),
        (GOOD.encode() + b"- question: a\n  rationale: ' '\n", "exemplar 2 has no text 'rationale', 'answer'"),
        (b"- only a line\n", "exemplar 1 has no text 'question', 'rationale', 'answer'"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes(content)
    with pytest.raises(SettingError) as caught:
        load_exemplars(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="No such file"):
        load_exemplars(tmp_path / "no.yaml")
    with pytest.raises(SettingError, match="Is a directory"):
        load_exemplars(tmp_path)
