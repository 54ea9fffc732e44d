"""What workers on a local Ray cluster save: Table 2's six methods over the same questions, by one process and by n.

Rounds are interleaved and ratios are taken within one; both ways write run directories, and their bytes are compared.
Workers have loaded their model before a round begins; how long that took is given by itself.

    python benchmarks/cluster.py --out benchmarks/results/cluster.json
    python benchmarks/cluster.py --questions 2 --rounds 1 --actors 1    # tries the script
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a process, here as in the workers

import dragin_lab as dl
from dragin_lab.engines.load import LanguageModel
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.run.benchmark import Benchmark, open_benchmark

#: The methods of the paper's Table 2.
METHODS = ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare", "dragin")


def run_all(lab: dl.Lab, asked: Benchmark, folder: Path) -> tuple[float, dict[str, bytes]]:
    """Seconds that the six methods took, and the predictions of each."""
    began = time.perf_counter()
    lab.run(asked, METHODS, output=folder, progress=False)
    seconds = time.perf_counter() - began
    return seconds, {name: (folder / asked.name / name / "predictions.jsonl").read_bytes() for name in METHODS}


def measure(asked: Benchmark, actors: Sequence[int], rounds: int) -> dict[str, Any]:
    """All ways over all rounds."""
    here = dl.Lab(LanguageModel.load(), retriever=open_retriever())
    with tempfile.TemporaryDirectory() as folder:
        run_all(here, first(asked, 1), Path(folder))  # warms up
    rows, alone, lines = [], [], b""
    for count in actors:
        began = time.perf_counter()
        with dl.Cluster("local", actors=count) as cluster:
            with tempfile.TemporaryDirectory() as folder:
                run_all(dl.Lab(cluster), first(asked, 2 * count), Path(folder))  # until all have loaded
            ready = time.perf_counter() - began
            one, many, same = [], [], True
            for place in range(rounds):
                found = {}
                for way in ("one", "many")[:: 1 if place % 2 else -1]:
                    with tempfile.TemporaryDirectory() as folder:
                        lab = here if way == "one" else dl.Lab(cluster)
                        found[way] = run_all(lab, asked, Path(folder))
                one.append(found["one"][0])
                many.append(found["many"][0])
                same = same and found["one"][1] == found["many"][1]
                lines = b"".join(found["one"][1].values())
        alone += one
        rows.append(
            {
                "actors": count,
                "rounds": rounds,
                "median_s": statistics.median(many),
                "over_one": statistics.median(b / a for a, b in zip(one, many, strict=True)),
                "ready_s": ready,
                "same_bytes": same,
            }
        )
    records = [json.loads(line) for line in lines.splitlines()]
    return {
        "episodes": len(records),
        "one_median_s": statistics.median(alone),
        "actors": rows,
        "an_episode": {name: statistics.mean(r[name] for r in records) for name in ("drafts", "tokens", "retrievals")},
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "device": str(here.model.device),
            "model": here.model.name,
        }
        | {name: version(name) for name in ("ray", "torch", "transformers")},
    }


def first(asked: Benchmark, count: int) -> Benchmark:
    """The first so many questions."""
    return Benchmark(asked.name, asked.questions[:count], asked.template)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cluster.json"))
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    asked = open_benchmark("almanac/2wikimultihopqa", limit=args.questions)
    found = measure(asked, args.actors, args.rounds)
    for row in found["actors"]:
        print(
            f"{row['actors']} workers / one process {row['over_one']:.2f}; ready in {row['ready_s']:.0f} s; "
            f"{'the same bytes' if row['same_bytes'] else 'OTHER BYTES'}"
        )
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {args.out}")
    if not all(row["same_bytes"] for row in found["actors"]):
        raise SystemExit("a run on the cluster holds other bytes than the one in one process")


if __name__ == "__main__":
    main()
