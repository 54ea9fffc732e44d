"""Make the runs that the notebooks' gallery reads: the paper's Tables 2 to 7 on Almanac, as run directories.

    python -m tools.runs                     200 questions, 50 of each benchmark; resumed where it was stopped
    python -m tools.runs --questions 8 --output runs/look
    python -m tools.runs --part methods      one part only; two parts may run side by side

    methods      all eight methods (Tables 2 and 3; rows of 4, 6 and 7)
    thresholds   DRAGIN over θ (Table 5)
    ablations    another *when* (Table 4), another *what* (Table 6)
    retrievers   DRAGIN with a dense retriever on the embedded model (the second half of Table 7)
    variants     DRAGIN and FLARE as their papers have them

Every run is ``OUTPUT/<part>/<data set>/<method>``. Settings are those that docs/results/almanac.md chose on the
development split; questions are the first of the test split, which alternate between the two halves of the world.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the embedded model's threads would only wait for one another

import dragin_lab as dl
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import DraginLabError
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.run.benchmark import open_benchmark
from dragin_lab.run.lines import summary
from tools.base import CHOSEN, RUNS, parser, say

OUTPUT = RUNS / "gallery"
#: Tokens of an answer, as in docs/results/almanac.md; self-ask's holds its questions too, and keeps its own default.
NEW_TOKENS = 96
#: Of each method in all, a quarter a benchmark.
QUESTIONS = 200
BATCH = 16  # questions side by side
#: The paper's five (Table 5), and others around the one that was chosen, which stands in the part ``methods``.
THETAS = (0.5, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 2.5, 3.0)
#: Table 4's other *when* with the query it gives all of them, and Table 6's other *what*.
TRIGGERS = ("fl-rag", "flare", "dragin")
FORMULATORS = ("confident-sentence", "full-context", "last-n")


def made(name: str, variant: str = "reference", **changes: Any) -> Method:
    """A method with the settings chosen for the embedded model; ``changes`` replace some of them."""
    length = {} if name == "self-ask" else {"max_new_tokens": NEW_TOKENS}
    settings = CHOSEN[variant].get(name, {}) | length | changes
    if changes.get("what", "qfs") != "qfs":
        settings.pop("top_n", None)  # the length chosen for a QFS query
    return dl.method(name, variant=variant if name in REFERENCE_METHODS else "paper", **settings)


#: The methods of each part, in the order in which they are run.
PARTS: dict[str, Callable[[], list[Method]]] = {
    "methods": lambda: [made(name) for name in ("dragin", *(name for name in PAPERS if name != "dragin"))],
    "thresholds": lambda: [made("dragin", threshold=theta) for theta in THETAS],
    "ablations": lambda: [
        *(made(name, what="last-sentence") for name in TRIGGERS),
        *(made("dragin", what=what) for what in FORMULATORS),
    ],
    "retrievers": lambda: [made("dragin")],
    "variants": lambda: [made("dragin", "paper"), made("flare", "paper")],
}


def dense_retriever(model: str) -> Any:
    """The retriever of ``retrievers``; None, with a word on why, where this installation cannot have it."""
    try:
        from dragin_lab.retrieval.choose import open_retriever

        return open_retriever(f"dense:{model}", None)
    except (ImportError, DraginLabError) as error:
        say(f"retrievers: left out, no dense retriever ({error})")
        return None


def run_part(part: str, lm: Any, retriever: Any, each: int, output: Path, batch_size: int) -> None:
    """The runs of one part, all methods on a benchmark before the next one, so that they share what one has written."""
    lab = dl.Lab(lm, retriever=retriever, cache=True)
    for name in BENCHMARKS:
        asked = open_benchmark(f"almanac/{name}", limit=each)
        for method in PARTS[part]():
            begun = time.monotonic()
            (record,) = lab.run(asked, method, output=output / part, batch_size=batch_size, progress=False).records
            found = summary(record.predictions)
            said = f"{found['n']:.0f} questions, EM {found['em']:.3f}, {found['retrievals']:.2f} retrievals"
            said += f", {len(record.failed)} failed" if record.failed else ""
            say(f"{part}: {asked.name} {method.label}: {said}, {time.monotonic() - begun:.0f} s")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument(
        "--questions", type=int, default=QUESTIONS, help="of each method in all, a quarter a benchmark"
    )
    command.add_argument("--output", type=Path, default=OUTPUT, help="folder of the runs (default: runs/gallery)")
    command.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS), help="only these parts")
    command.add_argument(
        "--encoder", default="almanac",
        help="the dense retriever's model: a folder, an id, or almanac, the embedded one (the default)",
    )  # fmt: skip
    command.add_argument(
        "--batch-size", type=int, default=BATCH,
        help="questions side by side; then answers depend on their neighbours where two tokens are equally likely",
    )  # fmt: skip
    given = command.parse_args(arguments)
    if given.questions < len(BENCHMARKS) or given.questions % len(BENCHMARKS):
        command.error(f"--questions {given.questions}: give a multiple of {len(BENCHMARKS)}, one for each benchmark")
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    lm, words = LanguageModel.load(), dl.BM25(dl.Corpus.load())
    for part in given.part:
        retriever = dense_retriever(given.encoder) if part == "retrievers" else words
        if retriever is not None:
            run_part(part, lm, retriever, given.questions // len(BENCHMARKS), given.output, given.batch_size)


if __name__ == "__main__":
    try:
        main()
    except DraginLabError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on where it stopped")
