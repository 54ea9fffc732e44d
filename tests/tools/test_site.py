"""The documentation's site: it builds without a warning, names everything that is public, and asks no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dragin_lab
from dragin_lab import views
from dragin_lab.cli import cli
from tools.pages.architecture import ROOMS, drawing
from tools.pages.base import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    settings = {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_public_name_and_command_is_described(site: Path) -> None:
    python = (site / "reference/python/index.html").read_text(encoding="utf-8")
    for name in [*(f"dl.{n}" for n in dragin_lab.__all__), *(f"views.{n}" for n in views.__all__)]:
        assert re.search(rf">\s*{re.escape(name)}\s*<", python), name
    commands = (site / "reference/command-line/index.html").read_text(encoding="utf-8")
    assert [name for name in cli.commands if f"dragin-lab {name}" not in commands] == []


def test_nothing_is_loaded_from_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]+src(?:set)?="(https?:[^"]+)', text)
        assert loaded + re.findall(r'<link[^>]+href="(https?:[^"]+)', text) == [], page
    for sheet in (site / "assets").rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", sheet.read_text(encoding="utf-8")), sheet


def test_the_map_shows_the_rooms_as_the_house_has_them() -> None:
    from test_house import ROOMS as HOUSE

    assert ROOMS == HOUSE
    assert all(f">{room}</text>" in drawing() for room in ROOMS)
