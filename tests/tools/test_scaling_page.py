"""docs/scaling.md: what it says that Table 2 costs comes from the paper's tables and from files of measurements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.pages import scaling

ROOT = Path(__file__).parents[2]
CPU = {
    "episodes": 60,
    "one_median_s": 30.0,
    "actors": [{"actors": 2, "rounds": 3, "median_s": 18.0, "over_one": 0.6, "ready_s": 9.4, "same_bytes": True}],
    "an_episode": {"drafts": 3.0, "tokens": 80.0, "retrievals": 2.0},
    "machine": {
        "cores": 2, "machine": "x86_64", "python": "3.11.7", "device": "cpu", "model": "almanac", "ray": "2.60.0",
        "torch": "2.13.0", "transformers": "5.23.0",
    },
}  # fmt: skip
GPU = {
    "shape": {"layers": 32, "hidden": 4096, "dtype": "bfloat16"},
    "machine": {"device": "Some GPU"},
    "decoding": [{"episodes": 8, "prompt": 1024, "tokens": 128, "median_s": {"capture": 16.0}}],
}


def test_table_2_is_counted_from_the_paper() -> None:
    assert scaling.episodes_of_table_2() == 3 * 6 * (1000 + 1000 + 1000 + 954)


def test_the_page_holds_what_the_script_writes() -> None:
    text, episodes, cpu = (
        scaling.PAGE.read_text(encoding="utf-8"),
        scaling.episodes_of_table_2(),
        scaling.read("cluster"),
    )
    blocks = dict(re.findall(r"<!-- ([\w-]+): written[^>]*-->\n(.*?)<!-- end -->", text, re.DOTALL))
    mean = None if cpu is None else cpu["an_episode"]
    assert blocks == {
        "formula": scaling.formula_section(episodes),
        "one-machine": scaling.cpu_section(cpu, episodes),
        "gpu": scaling.gpu_section(scaling.read("gpu"), mean, episodes),
    }


def test_measured_rates_become_costs() -> None:
    rows = scaling.cpu_section(CPU, 72_000).splitlines()
    assert "| one process | 1 | 2.00 | 10 hours | | |" in rows
    assert "| `--ray local --actors 2` | 0.60 | 3.33 | 6.0 hours | 9 s | yes |" in rows
    assert "| 8 | 2.000 | 5.0 days |" in scaling.gpu_section(GPU, CPU["an_episode"], 72_000).splitlines()
    assert "| 8 | 2.000 |" in scaling.gpu_section(GPU, None, 72_000).splitlines()


def test_what_was_not_measured_is_said() -> None:
    assert scaling.cpu_section(None, 10).startswith("Nothing was measured")
    assert scaling.gpu_section(None, None, 10).startswith("No figure was measured")


@pytest.mark.parametrize(
    ("seconds", "says"), [(40, "40 seconds"), (600, "10 minutes"), (7100, "118 minutes"), (8000, "2.2 hours")]
)
def test_durations(seconds: float, says: str) -> None:
    assert scaling.duration(seconds) == says
