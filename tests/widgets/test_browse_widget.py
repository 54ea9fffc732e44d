"""``browse`` in a notebook: what its front end sends becomes marks and notes in the run directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import write_run

import dragin_lab as dl
from dragin_lab.run.notes import NOTES


@pytest.fixture
def shown(tmp_path: Path) -> dl.browse:  # type: ignore[valid-type]
    write_run(tmp_path, "dragin", "mine", [1.0, 0.0])
    return dl.browse(tmp_path)


def test_notes_go_into_the_run_directory(shown, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(shown, "send", said.append)
    shown._heard(None, {"kind": "note", "set": "mine", "id": "q1", "mark": True, "note": "odd"}, None)
    kept = json.loads((tmp_path / "mine" / "dragin" / NOTES).read_text())
    assert kept == {"q1": {"mark": True, "note": "odd"}}
    shown._heard(None, {"kind": "note", "set": "mine", "id": "q7", "mark": True, "note": ""}, None)
    shown._heard(None, {"kind": "else"}, None)
    assert said == [{"error": ""}, {"error": "no run has a question 'q7'; ids are in .questions"}]
    again = dl.browse(tmp_path).data["runs"]["questions"]
    assert [(one["mark"], one["note"]) for one in again] == [(False, ""), (True, "odd")]


def test_it_saves_a_page_and_has_a_stand_in(shown, tmp_path):
    assert "browse-data" in shown.save(tmp_path / "r.html").read_text()
    bundle, _ = shown._repr_mimebundle_()
    assert "means per question" in bundle["text/plain"]
    assert "<script" not in bundle["text/html"]
