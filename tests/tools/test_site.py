"""The documentation's site: it builds without a warning, names everything that is public, and asks no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import dragin_lab
from dragin_lab import views
from dragin_lab.cli import cli
from tools.pages.architecture import ROOMS, drawing
from tools.pages.base import ROOT


def test_it_builds_names_all_that_is_public_and_asks_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    settings = {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    python = (tmp_path / "reference/python/index.html").read_text(encoding="utf-8")
    for name in [*(f"dl.{n}" for n in dragin_lab.__all__), *(f"views.{n}" for n in views.__all__)]:
        assert re.search(rf">\s*{re.escape(name)}\s*<", python), name
    commands = (tmp_path / "reference/command-line/index.html").read_text(encoding="utf-8")
    assert [name for name in cli.commands if f"dragin-lab {name}" not in commands] == []
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]+src(?:set)?="(https?:[^"]+)', text)
        assert loaded + re.findall(r'<link[^>]+href="(https?:[^"]+)', text) == [], page
    for sheet in (tmp_path / "assets").rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", sheet.read_text(encoding="utf-8")), sheet


def test_the_map_shows_the_rooms_as_the_house_has_them() -> None:
    from test_house import ROOMS as HOUSE

    assert ROOMS == HOUSE
    drawn = drawing()
    assert all(f">{room}</text>" in drawn for room in ROOMS)
