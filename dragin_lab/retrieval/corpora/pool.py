"""Blocks of a source, parsed by several processes, in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from dragin_lab.errors import BrokenOffError, CorpusError
from dragin_lab.retrieval.corpora.parse import Parsed, Plan, parse
from dragin_lab.retrieval.corpora.sources import BLOCK_BYTES, Block, Source

#: Bytes on disk below which starting processes takes longer than they save.
SMALL = 32 << 20
#: More cannot be fed: the one process that unpacks and writes is then the slowest.
MOST = 8

Result = Callable[[], Parsed]  # waits for the parsed block


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sensible_workers(source: Source) -> int:
    return 1 if source.bytes < SMALL else min(cores(), MOST)


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Processes that share no lock and no open file with this one, and end when it does, however it ends."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_follow_parent)


def _follow_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends the pool
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def pooled(stream: Iterator[Block], plan: Plan, workers: int) -> Iterator[tuple[Block, Result | None]]:
    """Each block with what waits for its result, as if nothing had been left of the block before.

    With one worker there is no pool, and no result. A few blocks a worker are under way at a time. An error of the
    source is raised after the blocks before it.
    """
    if workers == 1:
        yield from ((block, None) for block in stream)
        return
    failure: CorpusError | None = None
    pool = process_pool(workers)
    try:
        pending: deque[tuple[Block, Future[Parsed]]] = deque()
        while True:
            try:
                block = next(stream, None)
            except CorpusError as error:
                block, failure = None, error
            if block is not None:
                pending.append((block, pool.submit(parse, block, plan)))
            if block is None or len(pending) > 2 * workers:
                if not pending:
                    break
                first, future = pending.popleft()
                yield first, future.result
        if failure is not None:
            raise failure
    except BrokenProcessPool:
        raise BrokenOffError(
            f"a process that parses was ended, perhaps for want of memory (a block of {BLOCK_BYTES >> 20} MiB takes "
            "some 50 MiB); run it again to go on, with fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
