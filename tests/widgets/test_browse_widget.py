"""``browse`` in a notebook: what it saves, and what stands in for it where nothing runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_run

import dragin_lab as dl


@pytest.fixture
def shown(tmp_path: Path) -> dl.browse:  # type: ignore[valid-type]
    write_run(tmp_path, "dragin", "mine", [1.0, 0.0])
    return dl.browse(tmp_path)


def test_it_saves_a_page_and_has_a_stand_in(shown, tmp_path):
    assert "browse-data" in shown.save(tmp_path / "r.html").read_text()
    bundle, _ = shown._repr_mimebundle_()
    assert "means per question" in bundle["text/plain"]
    assert "<script" not in bundle["text/html"]
