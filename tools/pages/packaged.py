"""Make notebooks/almanac_runs.tar.xz: the small runs that notebooks 03 and 04 read, of 200 questions.

    python -m tools.pages.packaged                 200 questions, 50 of each benchmark; resumed where it was stopped
    python -m tools.pages.packaged --questions 8   a quick look

Part ``methods`` of ``tools.pages.runs``, and DRAGIN over θ on HotpotQA's form. All methods share one cache, so that
what one has written serves the next. Traces are packed for the methods of ``TRACED`` on the first benchmark alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the embedded model's threads would only wait for one another

import dragin_lab as dl
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.errors import DraginLabError
from dragin_lab.run.benchmark import open_benchmark
from dragin_lab.run.rundir import CONFIG, ENDING, PREDICTIONS, TIMINGS, TRACES, read_run
from tools.pages.base import RUNS, parser, say
from tools.pages.runs import BATCH, PARTS, made

ARCHIVE = Path(__file__).parents[2] / "notebooks" / f"almanac_runs{ENDING}"
OUTPUT = RUNS / "packaged"
TRACED = ("wo-rag", "flare", "dragin")
THETAS = (0.5, 1.5, 2.5, 3.0, 6.0)


def pack(folder: str | Path, files: Iterable[Path], path: str | Path) -> Path:
    """Write files below a folder as an archive, under their names there; the same files give the same bytes."""
    root = Path(folder)
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(files):
            about = tarfile.TarInfo(file.relative_to(root).as_posix())
            about.size = file.stat().st_size
            with file.open("rb") as data:
                archive.addfile(about, data)
    return Path(path)


def answer(each: int, output: Path) -> None:
    lab = dl.Lab(cache=True)
    sweep = [made("dragin", threshold=theta) for theta in sorted(THETAS, reverse=True)]
    for name in BENCHMARKS:
        asked = open_benchmark(f"almanac/{name}", limit=each)
        wanted = [("methods", method) for method in PARTS["methods"]()]
        wanted += [("thresholds", method) for method in sweep if name == "hotpotqa"]
        for part, method in wanted:
            (record,) = lab.run(asked, method, output=output / part, batch_size=BATCH, progress=False).records
            say(f"{part}: {record!r}")


def chosen(output: Path) -> Iterator[Path]:
    """The files that are packed, of the runs that are complete."""
    for config in sorted(output.rglob(CONFIG)):
        record = read_run(config.parent)
        if not record.complete:
            continue
        yield from (config.with_name(name) for name in (CONFIG, PREDICTIONS, TIMINGS))
        first = config.relative_to(output).parts[0] == "methods" and config.parent.parent.name == BENCHMARKS[0]
        if first and record.config["method"]["name"] in TRACED:
            yield from (config.parent / TRACES).iterdir()


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    answer(given.questions // len(BENCHMARKS), given.output)
    path = pack(given.output, chosen(given.output), given.archive)
    say(f"{path}: {path.stat().st_size:,} bytes")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("--questions", type=int, default=200, help="of each method in all, a quarter a benchmark")
    command.add_argument("--output", type=Path, default=OUTPUT, help="folder of the runs (default: runs/packaged)")
    command.add_argument("--archive", type=Path, default=ARCHIVE, help="the file that is written")
    return command.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except DraginLabError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on where it stopped")
