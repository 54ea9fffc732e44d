"""What a trigger of one's own costs beside the shipped RIND, in the same episodes.

The own one is RIND's Eq. 5 as a function under ``@dl.when``, with the same θ, so that both decide alike and write the
same text (paper variant; the released RIND scores otherwise). Interleaved, question by question, as ratios.

    python benchmarks/trigger.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from common import begin, budget, machine, parser, write

import dragin_lab as dl
from dragin_lab.data.datasets import demo_questions

THETA = 0.5


@dl.when("own-rind", threshold=THETA, skip_stop_words=True)
def own_rind(draft: dl.Draft) -> np.ndarray:
    """Entropy times the attention received; 0 on stop words (DRAGIN, Eq. 5)."""
    return draft.entropy * draft.received  # (n,)


def main() -> None:
    options = parser(__doc__, "trigger")
    options.add_argument("--questions", type=int, default=10)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    begin(args)
    lab = dl.Lab()
    ways = {name: dl.method(when=name, variant="paper", threshold=THETA) for name in ("rind", "own-rind")}
    ratios, alike = [], 0
    for place in range(args.rounds + 1):  # the first one warms up
        for question in demo_questions()[: args.questions]:
            took, texts = {}, set()
            for name in sorted(ways, reverse=bool(place % 2)):
                began = time.perf_counter()
                texts.add(lab.ask(question, ways[name]).text)
                took[name] = time.perf_counter() - began
            if place:
                ratios.append(took["own-rind"] / took["rind"])
                alike += len(texts) == 1
    found = {
        "budgets": [budget("a trigger of one's own / RIND, same episode", statistics.median(ratios), 1.1)],
        "episodes": len(ratios),
        "same_text": alike,
        "machine": machine(lab.model.device, lab.model.model.dtype),
    }
    print(f"own trigger: {found['budgets'][0]['measured']:.3f} x RIND's time, same text in {alike} of {len(ratios)}")
    write(args.out, found)


if __name__ == "__main__":
    main()
