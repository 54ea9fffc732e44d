"""docs/scaling.md: what it says that Table 2 costs comes from the paper's tables and from files of measurements."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CPU = {
    "episodes": 60,
    "one_median_s": 30.0,
    "actors": [{"actors": 2, "rounds": 3, "median_s": 18.0, "over_one": 0.6, "ready_s": 9.4, "same_bytes": True}],
    "an_episode": {"drafts": 3.0, "pieces": 80.0, "retrievals": 2.0},
    "machine": {
        "cores": 2, "machine": "x86_64", "python": "3.11.7", "device": "cpu", "model": "almanac", "ray": "2.60.0",
        "torch": "2.13.0", "transformers": "5.23.0",
    },
}  # fmt: skip
GPU = {
    "shape": {"layers": 32, "hidden": 4096, "dtype": "bfloat16"},
    "machine": {"device": "Some GPU"},
    "decoding": [{"episodes": 8, "prompt": 1024, "pieces": 128, "median_s": {"capture": 16.0}}],
}


@pytest.fixture(scope="module")
def page() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        spec = importlib.util.spec_from_file_location("make_scaling", ROOT / "docs" / "make_scaling.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_table_2_is_counted_from_the_paper(page: ModuleType) -> None:
    assert page.episodes_of_table_2() == 3 * 6 * (1000 + 1000 + 1000 + 954)


def test_the_page_holds_what_the_script_writes(page: ModuleType) -> None:
    text, episodes, cpu = page.PAGE.read_text(encoding="utf-8"), page.episodes_of_table_2(), page.read("cluster")
    blocks = dict(re.findall(r"<!-- ([\w-]+): written[^>]*-->\n(.*?)<!-- end -->", text, re.DOTALL))
    mean = None if cpu is None else cpu["an_episode"]
    assert blocks == {
        "formula": page.formula_section(episodes),
        "one-machine": page.cpu_section(cpu, episodes),
        "gpu": page.gpu_section(page.read("gpu"), mean, episodes),
    }


def test_measured_rates_become_costs(page: ModuleType) -> None:
    rows = page.cpu_section(CPU, 72_000).splitlines()
    assert "| one process | 1 | 2.00 | 10 hours | | |" in rows
    assert "| `--ray local --actors 2` | 0.60 | 3.33 | 6.0 hours | 9 s | yes |" in rows
    assert "| 8 | 2.000 | 5.0 days |" in page.gpu_section(GPU, CPU["an_episode"], 72_000).splitlines()
    assert "| 8 | 2.000 |" in page.gpu_section(GPU, None, 72_000).splitlines()


def test_what_was_not_measured_is_said(page: ModuleType) -> None:
    assert page.cpu_section(None, 10).startswith("Nothing was measured")
    assert page.gpu_section(None, None, 10).startswith("No figure was measured")


@pytest.mark.parametrize(
    ("seconds", "says"), [(40, "40 seconds"), (600, "10 minutes"), (7100, "118 minutes"), (8000, "2.2 hours")]
)
def test_durations(page: ModuleType, seconds: float, says: str) -> None:
    assert page.duration(seconds) == says
