"""``dragin-lab corpus build``: from a source to a corpus on disk (``store``), in bounded memory.

One process reads, unpacks and writes. Parsing, which is most of the work (``benchmarks/corpus.py`` takes it apart),
goes to other processes in blocks of whole lines. Text files are parsed where they are read: where a passage of 100
words begins depends on all before it.

A build that was broken off goes on where it stopped (``writer``), and its result is the same to the byte:
nothing in it depends on blocks, processes, checkpoints or the clock.

Memory: a few blocks a process, and 12 bytes a passage for the ids (24 with ``dedupe``), thrice that while they are
sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragin_lab.errors import BrokenOffError, CorpusError
from dragin_lab.files import LOCK, locked, not_saved, write_whole
from dragin_lab.retrieval.corpora.files import PASSAGE_WORDS
from dragin_lab.retrieval.corpora.parse import Plan
from dragin_lab.retrieval.corpora.pool import sensible_workers
from dragin_lab.retrieval.corpora.sources import ARTICLES, TEXT, Source, find_source
from dragin_lab.retrieval.corpora.store import MANIFEST, PROGRESS, Store
from dragin_lab.retrieval.corpora.writer import TEXTS, Progress, Writer, clear, compare_count
from dragin_lab.retrieval.indexes import INDEXES


@dataclass(frozen=True)
class Built:
    """What a build made. ``resumed``: the passages that were there when it began; ``skipped``: the first messages."""

    store: Store
    resumed: int
    skipped: tuple[str, ...]


def build(
    source: str | Path,
    out: str | Path,
    *,
    kind: str | None = None,
    dedupe: bool = False,
    skip_bad: bool = False,
    expect: int | None = None,
    force: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
) -> Built:
    """Build a corpus in the folder ``out``, or go on with a build there that was broken off.

    Args:
        source: DPR's ``psgs_w100.tsv[.gz]``, JSON lines (``.jsonl[.gz]``), a folder of .txt files, or the folder or a
            file of WikiExtractor's ``--json``; text and articles are cut into passages of 100 words (paper, 4.5).
        kind: ``dpr``, ``jsonl``, ``text`` or ``wikiextractor``; by default what the names of the files tell.
        dedupe: leave out a passage whose title and text an earlier one has.
        skip_bad: leave out bad records, count them, and list them in ``skipped.jsonl``.
        expect: refuse to finish with another number of passages.
        force: begin anew, whatever build the folder holds.
        workers: processes that parse; by default one a core, and none of their own for a small source.
        progress: a bar on the error output; by default where that is a terminal.

    Raises:
        CorpusError: what is wrong with the source, with file and line, or with the folder.
        BrokenOffError: the disk is full, or a process ended. Either way, the same call goes on where this one stopped.
    """
    found = find_source(Path(source).expanduser(), kind)
    folder = Path(out).expanduser()
    settings: dict[str, Any] = {"dedupe": dedupe, "skip_bad": skip_bad}
    if found.kind in (ARTICLES, TEXT):
        settings["passage_words"] = PASSAGE_WORDS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "another build is writing here; wait for it, or give another --out"):
            if force:
                clear(folder)
            if (folder / MANIFEST).exists():
                return _already(folder, found, settings, expect)
            begin = _begin(folder, found, settings)
            plan = Plan(found.kind, found.header, dedupe, skip_bad)
            with Writer(folder, found, plan, begin, expect) as work:
                work.run(workers or sensible_workers(found), progress)
                store = work.finish()
                return Built(store, begin.passages, tuple(work.messages))
    except OSError as error:
        raise BrokenOffError(
            f"{not_saved(error.filename or folder, error)}; then run it again, and it goes on where it stopped"
        ) from error


def _already(folder: Path, source: Source, settings: dict[str, Any], expect: int | None) -> Built:
    """The corpus that is there, if it is the one asked for."""
    store = Store(folder)
    _compare(folder, "the corpus", store.manifest.source, store.manifest.settings, _facts(source), settings)
    for name in (PROGRESS, TEXTS):  # of a build that was killed in its very last moment
        (folder / name).unlink(missing_ok=True)
    compare_count(source, len(store), expect)
    return Built(store, len(store), ())


def _begin(folder: Path, source: Source, settings: dict[str, Any]) -> Progress:
    path = folder / PROGRESS
    if not path.exists():
        # Indexes of a corpus that was here say so themselves.
        if any(one.name not in (INDEXES, LOCK) for one in folder.iterdir()):
            raise CorpusError(f"{folder}: is not empty and holds no corpus; give a folder of its own with --out")
        begin = Progress(_facts(source), settings)
        write_whole(path, begin.dumped())
        return begin
    begin = Progress.read(path)
    # The source's length may differ: a bad line may have been mended. That what was read is the same is checked later.
    there = begin.source | {key: _facts(source)[key] for key in ("bytes", "files", "head")}
    _compare(folder, "an unfinished build", there, begin.settings, _facts(source), settings)
    return replace(begin, source=_facts(source))


def _facts(source: Source) -> dict[str, Any]:
    name = source.path.resolve().name
    return {
        "name": name, "kind": source.kind, "files": len(source.files), "bytes": source.bytes, "head": source.head
    }  # fmt: skip


def _compare(
    folder: Path,
    what: str,
    source: dict[str, Any],
    settings: dict[str, Any],
    new: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    was = f"{source.get('name')} ({source.get('kind')}, {source.get('bytes', 0):,} bytes)"
    if any(source.get(key) != value for key, value in new.items()):
        now = f"{new['name']} ({new['kind']}, {new['bytes']:,} bytes)"
        raise CorpusError(
            f"{folder}: holds {what} of another source, {was} and not {now}; "
            "give another --out, or --force to replace it"
        )
    for key, value in asked.items():
        if settings.get(key) != value:
            raise CorpusError(
                f"{folder}: holds {what} of {was} made with {key}={settings.get(key)} and not {value}; "
                "give another --out, or --force to replace it"
            )
