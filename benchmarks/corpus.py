"""What it takes to build a corpus, to go on with a broken-off build, to open it, read from it and check it.

Every figure is of a process of its own: seconds, processor seconds of it and its children, the peak of the memory of
all of them together (resident, sampled; pages that they share count for each). The passages are ``zipf.py``'s.

- build: packed table to corpus, with one process and with one a core;
- resume: the same, from a build that was killed at about half of it; its ratio to the whole build;
- steps: the processor time of the steps of a build, on one block of lines, as shares of their sum: whether it pays to
  spread parsing over the cores can be read from what is left for the one process that unpacks and writes;
- read: opening the corpus, resident memory then and after reads, microseconds of a read by row and by id (medians);
- check: the full check;
- index, search: the BM25S index (``corpus_index.py``), and from the two largest sizes what the paper's corpus of
  21,015,324 passages would take.

    python benchmarks/corpus.py --passages 100000 1000000
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus_index
import numpy as np
import psutil
import zipf

MIB = 2**20
RESULTS = Path(__file__).resolve().parent / "results"


def measured(*command: object) -> dict[str, Any]:
    """Run this script for one figure; what it printed as JSON, with its time and memory."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, *map(str, command)], stdout=subprocess.PIPE)
    peak = 0
    finished = threading.Event()

    def sample() -> None:
        nonlocal peak
        top = psutil.Process(process.pid)
        while not finished.wait(0.02):
            try:
                family = [top, *top.children(recursive=True)]
                peak = max(peak, sum(one.memory_info().rss for one in family))
            except psutil.NoSuchProcess:
                continue

    sampler = threading.Thread(target=sample)
    sampler.start()
    said = process.communicate()[0]
    finished.set()
    sampler.join()
    if process.returncode:
        raise SystemExit(f"{command}: ended with {process.returncode}")
    return json.loads(said) | {"seconds": time.perf_counter() - began, "peak_MiB": peak / MIB}


# -- what runs in a process of its own --------------------------------------------------------------------------------


def build(source: Path, out: Path, workers: int) -> dict[str, Any]:
    from dragin_lab.retrieval.corpora.build import build

    built = build(source, out, workers=workers, progress=False)
    times = os.times()
    cpu = times.user + times.system + times.children_user + times.children_system
    return {"cpu_seconds": cpu, "resumed": built.resumed, "passages": len(built.store)}


def killed(source: Path, out: Path, share: float) -> None:
    """Build, and end without a word at the first checkpoint after a share of the passages."""
    from dragin_lab.retrieval.corpora import writer as corpus_writer
    from dragin_lab.retrieval.corpora.build import build

    last = corpus_writer.Writer._make_last
    wanted = share * float(os.environ["PASSAGES"])

    def counted(self: corpus_writer.Writer) -> None:
        last(self)
        if self.done.passages >= wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    corpus_writer.Writer._make_last = counted  # type: ignore[method-assign]
    corpus_writer.CHECKPOINT_BYTES = 4 * MIB
    build(source, out, workers=1, progress=False)


def read(folder: Path, reads: int) -> dict[str, Any]:
    from dragin_lab.retrieval.corpus import Corpus

    process = psutil.Process()
    before = process.memory_info().rss
    began = time.perf_counter()
    corpus = Corpus.load(folder)
    opened = time.perf_counter() - began
    resident = process.memory_info().rss
    rows = random.Random(0).choices(range(len(corpus)), k=reads)
    by_row, by_id = [], []
    for row in rows:
        began = time.perf_counter()
        passage = corpus[row]
        by_row.append(time.perf_counter() - began)
        began = time.perf_counter()
        corpus.get(passage.id)
        by_id.append(time.perf_counter() - began)
    after = process.memory_info().rss
    return {
        "open_seconds": opened,
        "open_MiB": (resident - before) / MIB,
        "read_MiB": (after - before) / MIB,
        "row_microseconds": 1e6 * statistics.median(by_row),
        "id_microseconds": 1e6 * statistics.median(by_id),
    }


def check(folder: Path, workers: int) -> dict[str, Any]:
    from dragin_lab.retrieval.corpora.check import check

    return {"wrong": sum(not good for _, good in check(folder, full=True, workers=workers, progress=False))}


def steps(source: Path) -> dict[str, Any]:
    """Processor seconds of each step on the first block, and their shares."""
    from dragin_lab.retrieval.corpora import parse as corpus_parse
    from dragin_lab.retrieval.corpora.seen import Seen
    from dragin_lab.retrieval.corpora.sources import BLOCK_BYTES, Position, blocks, find_source

    def timed(action: Callable[[], Any]) -> tuple[float, Any]:
        times, result = [], None
        for _ in range(5):
            began = time.process_time()
            result = action()
            times.append(time.process_time() - began)
        return statistics.median(times), result

    found = find_source(source)
    block = next(blocks(found, Position()))
    plan = corpus_parse.Plan(found.kind, found.header, dedupe=False, skip_bad=False)
    seconds: dict[str, float] = {}
    seconds["unpack"], _ = timed(lambda: _unpack(source, BLOCK_BYTES))
    seconds["parse"], parsed = timed(lambda: corpus_parse.parse(block, plan))
    packed = b"".join(parsed.lines)
    seconds["checksums"], _ = timed(lambda: (zlib.crc32(block.data), hashlib.sha256(packed).digest()))
    seconds["ids"], _ = timed(lambda: (len(np.unique(parsed.ids)), Seen().add(parsed.ids, np.arange(len(parsed.ids)))))
    seconds["write"], _ = timed(lambda: _write(packed))
    total = sum(seconds.values())
    shares = {name: spent / total for name, spent in seconds.items()}
    return {"passages": len(parsed.lines), "cpu_seconds": seconds, "shares": shares}


def _unpack(source: Path, count: int) -> bytes:
    with gzip.open(source) as file:
        return file.read(count)


def _write(data: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(data)


# -- all of it --------------------------------------------------------------------------------------------------------


#: Passages up to which all is measured with one process too, and a build that was killed: each takes as long again.
COMPARED = 200_000


def figures(count: int, folder: Path, cores: int, reads: int) -> dict[str, Any]:
    processes = sorted({1, cores}) if count <= COMPARED else [cores]
    source = folder / "passages.tsv.gz"
    zipf.write_table(source, count)
    result: dict[str, Any] = {"passages": count, "packed_MiB": source.stat().st_size / MIB, "build": {}}
    for workers in processes:
        shutil.rmtree(folder / "built", ignore_errors=True)
        figure = measured("--child", "build", source, folder / "built", workers)
        result["build"][str(workers)] = figure | {"passages_a_second": count / figure["seconds"]}
    result["stored_MiB"] = sum(path.stat().st_size for path in (folder / "built").iterdir()) / MIB
    if count <= COMPARED:
        result["resume"] = resumed(count, source, folder, result["build"]["1"]["seconds"])
    result["steps"] = measured("--child", "steps", source)
    result["read"] = measured("--child", "read", folder / "built", reads)
    result["check"] = {str(w): measured("--child", "check", folder / "built", w) for w in processes}
    result["index"] = {str(w): measured("--child", "index", folder / "built", w) for w in processes}
    result["search"] = measured("--child", "search", folder / "built", min(reads, 400))
    return result


def resumed(count: int, source: Path, folder: Path, whole: float) -> dict[str, Any]:
    """A build that is killed halfway and goes on, against the ``whole`` one's seconds and bytes."""
    half = [sys.executable, __file__, "--child", "killed", str(source), str(folder / "half"), "0.5"]
    subprocess.run(half, env=os.environ | {"PASSAGES": str(count)}, check=False)
    result = measured("--child", "build", source, folder / "half", 1)
    result["over_whole"] = result["seconds"] / whole
    names = [path.name for path in sorted((folder / "built").iterdir())]
    result["same_bytes"] = all(
        (folder / "built" / name).read_bytes() == (folder / "half" / name).read_bytes() for name in names
    )
    shutil.rmtree(folder / "half")
    return result


def child(name: str, *arguments: str) -> None:
    if name == "build":
        said = build(Path(arguments[0]), Path(arguments[1]), int(arguments[2]))
    elif name == "killed":
        killed(Path(arguments[0]), Path(arguments[1]), float(arguments[2]))
        return
    elif name == "read":
        said = read(Path(arguments[0]), int(arguments[1]))
    elif name == "check":
        said = check(Path(arguments[0]), int(arguments[1]))
    elif name == "index":
        said = corpus_index.build(Path(arguments[0]), int(arguments[1]))
    elif name == "search":
        said = corpus_index.search(Path(arguments[0]), int(arguments[1]))
    else:
        said = steps(Path(arguments[0]))
    print(json.dumps(said))


def show(result: dict[str, Any]) -> None:
    print(
        f"{result['passages']:,} passages, {result['packed_MiB']:.1f} MiB packed, {result['stored_MiB']:.1f} MiB stored"
    )
    for workers, figure in result["build"].items():
        rate, peak = figure["passages_a_second"], figure["peak_MiB"]
        print(f"  build, {workers} processes: {figure['seconds']:.1f} s, {rate:,.0f} passages/s, peak {peak:.0f} MiB")
    if (resume := result.get("resume")) is not None:
        same = "the same bytes" if resume["same_bytes"] else "OTHER BYTES"
        print(f"  resumed from {resume['resumed']:,}: {resume['over_whole']:.2f} x the whole build, {same}")
    print("  steps: " + ", ".join(f"{name} {share:.0%}" for name, share in result["steps"]["shares"].items()))
    read = result["read"]
    memory = f"{read['open_MiB']:.1f} MiB; after reads {read['read_MiB']:.1f} MiB"
    print(f"  open {read['open_seconds'] * 1e3:.0f} ms, {memory}")
    print(f"  a read by row {read['row_microseconds']:.0f} us, by id {read['id_microseconds']:.0f} us")
    for workers, figure in result["check"].items():
        print(f"  full check, {workers} processes: {figure['seconds']:.1f} s, {figure['wrong']} wrong")
    corpus_index.show(result)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes beside one")
    parser.add_argument("--out", type=Path, default=RESULTS / "corpus.json")
    args = parser.parse_args()
    results = []
    for count in args.passages:
        with tempfile.TemporaryDirectory() as folder:
            results.append(figures(count, Path(folder), args.workers, args.reads))
        show(results[-1])
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    found: dict[str, Any] = {"corpora": results, "machine": machine}
    if (million := next((one for one in results if one["passages"] == 1_000_000), None)) is not None:
        found["budgets"] = corpus_index.budgets(million)
    if (whole := corpus_index.extrapolated(results)) is not None:
        found["extrapolated"] = whole
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {args.out.name}")


if __name__ == "__main__":
    main()
