"""What the scripts of this folder share: where things are, the settings of Almanac's model,
arguments.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DOCS, RUNS, RESULTS = ROOT / "docs", ROOT / "runs", ROOT / "benchmarks" / "results"

#: The embedded model's settings by variant, chosen on development (docs/results/almanac.md,
#: "Thresholds tried on development" and "Formulator").
CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "reference": {"dragin": {"threshold": 2.8, "top_n": 15}, "flare": {"threshold": 0.05}},
    "paper": {"dragin": {"threshold": 0.2, "top_n": 5}, "flare": {"threshold": 0.6}},
}


def parser(about: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring as it stands."""
    return argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def say(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
