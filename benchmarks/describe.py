"""What knowing a given part by what it is costs, once a run: a trigger that holds a frame of
100,000 rows, and one that holds a module of 100 MB, in seconds of processor time.

python benchmarks/describe.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import begin, budget, machine, parser, write

import dragin_lab as dl

AT_MOST = 0.2
ROWS, WIDTH = 100_000, 5_000


def measure(held: Any, runs: int) -> float:
    """The median of several looks at a trigger that reads a value."""

    @dl.when("holds", threshold=0.5)
    def holds(draft: dl.Draft) -> Any:
        return draft.entropy * (held is None)

    method, seconds = dl.method(when="holds"), []
    for _ in range(runs):
        began = time.process_time()
        assert method.described
        seconds.append(time.process_time() - began)
    return float(np.median(seconds))


def main() -> None:
    options = parser(__doc__, "describe")
    options.add_argument("--runs", type=int, default=9)
    args = options.parse_args()
    begin(args)
    words = [f"word {row}" for row in range(ROWS)]
    frame = pd.DataFrame({"word": words, "count": np.arange(ROWS), "share": np.arange(ROWS) / 7})
    held = {"a frame of 100,000 rows": frame, "a module of 100 MB": torch.nn.Linear(WIDTH, WIDTH)}
    seconds = {what: measure(one, args.runs) for what, one in held.items()}
    budgets = [budget(f"{what}, described", cost, AT_MOST, "s") for what, cost in seconds.items()]
    write(args.out, {"budgets": budgets, "seconds": seconds, "machine": machine()})


if __name__ == "__main__":
    main()
