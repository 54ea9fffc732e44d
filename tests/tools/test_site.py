"""The documentation's site: it builds without a warning, names everything that is public, and
asks no network.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mkdocs.__main__ import cli as mkdocs

import dragin_lab
from dragin_lab import views
from dragin_lab.cli.app import cli
from tools import site
from tools.base import ROOT

#: What `make docs-site` hands to MkDocs.
COMMAND = re.search(
    r"python -m mkdocs (build .*)", (ROOT / "Makefile").read_text(encoding="utf-8")
)[1].split()  # type: ignore[index]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `make docs-site` builds, with what it sets."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")


def build(site: Path, *options: str) -> Result:
    return CliRunner().invoke(mkdocs, [*COMMAND, "--site-dir", str(site), *options])


def test_it_builds_names_all_that_is_public_and_asks_no_network(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.exit_code == 0, done.stderr[-3000:]
    python = (tmp_path / "reference/python.html").read_text(encoding="utf-8")
    for name in [*(f"dl.{n}" for n in dragin_lab.__all__), *(f"views.{n}" for n in views.__all__)]:
        assert re.search(rf">\s*{re.escape(name)}\s*<", python), name
    commands = (tmp_path / "reference/command-line.html").read_text(encoding="utf-8")
    assert [name for name in cli.commands if f"dragin-lab {name}" not in commands] == []
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]+src(?:set)?="(https?:[^"]+)', text)
        assert site.UNNAMED not in text, page
        assert loaded + re.findall(r'<link[^>]+href="(https?:[^"]+)', text) == [], page
    for sheet in (tmp_path / "assets").rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", sheet.read_text(encoding="utf-8")), (
            sheet
        )


def test_every_public_name_stands_under_one_heading_and_the_lab_first() -> None:
    under = [name for names in site.HEADINGS.values() for name in names.split()]
    assert under[0] == "Lab"
    assert sorted(under) == sorted(dragin_lab.__all__)


BROKEN = {
    '<img src="raw.png" alt="">': "raw.png",
    '<picture><source srcset="dark.png 2x"><img src="there.png" alt=""></picture>': "dark.png",
    '<a href="raw.html">there</a>': "raw.html",
    '<a href="#raw">below</a>': "#raw",
    "[there](page.md)": "page.md",
    "[below](#heading)": "#heading",
    "![there](picture.png)": "picture.png",
}


def test_it_fails_on_every_address_that_leads_nowhere(tmp_path: Path) -> None:
    docs, settings = tmp_path / "docs", tmp_path / "mkdocs.yml"
    docs.mkdir()
    (docs / "there.png").touch()
    good = [
        "<img src='there.png' alt=''> <a href='#title'>up</a> <a href='/there.png'>there</a>"
        " [there](there.png)"
    ]
    (docs / "index.md").write_text("# Title\n\n" + "\n\n".join([*good, *BROKEN]), encoding="utf-8")
    settings.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md]\nplugins: []\nextra_css:"
        f" []\nhooks: [{ROOT / 'tools/site.py'}]\n",
        encoding="utf-8",
    )
    done = build(tmp_path / "site", "--config-file", str(settings))
    assert done.exit_code != 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert [
        html for html, address in BROKEN.items() if not any(address in line for line in warnings)
    ] == []
    assert "there.png" not in "".join(warnings)
