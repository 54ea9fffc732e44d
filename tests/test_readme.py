"""What the README tells a person to type works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragin_lab.core.method import PAPERS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block
    names: dict = {}
    exec(block[1], names)
    assert names["trace"].ended == "answered"
    assert (tmp_path / "first.trace").is_file()
    assert "method.variant: 'paper' → 'reference'" in capsys.readouterr().out


def test_the_page_on_extending_runs_from_top_to_bottom() -> None:
    from dragin_lab.core.trigger import WHENS
    from dragin_lab.core.what import WHATS

    before = dict(WHENS._found), dict(WHATS._found)
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    names: dict = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block, names)
            assert names["trace"].ended in ("answered", "length")
    finally:
        WHENS._found, WHATS._found = before
    assert names["traces"][0].scores.keys() >= {"em", "within_ten_years"}


def test_what_it_points_to_is_there() -> None:
    files = re.findall(r"(?:docs|notebooks|dragin_lab|tests|benchmarks)/[\w./-]*", README)
    assert files
    assert not [name for name in files if not (ROOT / name).exists()]


def test_the_demo_table_is_written() -> None:
    block = re.search(r"<!-- demo-table[^>]*-->\n(.*?)<!-- end -->", README, re.DOTALL)
    assert block
    rows = [
        line.split()[0] for line in block[1].splitlines() if line and not line.startswith(("`", "-", "─", "method"))
    ]
    assert rows == list(PAPERS)


def test_it_is_short_and_its_links_work_on_a_package_index() -> None:
    assert len(README.splitlines()) <= 120
    links = re.findall(r"\]\(([^)]+)\)|^\[[^\]]+\]: (.+)$", README, re.MULTILINE)
    assert [link for pair in links for link in pair if link and not link.startswith("https://")] == []
