"""The files of a build under way: blocks of passages are appended, and made to last from time to time.

Every ``CHECKPOINT_BYTES`` the files are brought to the disk and ``corpus.partial.json`` says how far they go. A build
that was broken off cuts what lies behind that, and goes on.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.errors import CorpusError
from dragin_lab.files import write_whole
from dragin_lab.retrieval.corpora.canaries import choose_canaries
from dragin_lab.retrieval.corpora.files import long_warning
from dragin_lab.retrieval.corpora.parse import Parsed, Plan, parse
from dragin_lab.retrieval.corpora.pool import pooled
from dragin_lab.retrieval.corpora.seen import Seen
from dragin_lab.retrieval.corpora.sources import TEXT, Block, Position, Source, blocks
from dragin_lab.retrieval.corpora.store import (
    FORMAT,
    MANIFEST,
    ORDER,
    ORDER_TYPE,
    PASSAGES,
    PROGRESS,
    ROW,
    ROWS,
    SKIPPED,
    Manifest,
    Records,
    Store,
    sha256_of,
)

#: Bytes of the source, unpacked, after which the work is made to last.
CHECKPOINT_BYTES = 64 << 20
TEXTS = "texts.partial.bin"  # (passages,) hashes of title and text, kept while a build with dedupe is under way
_OURS = (PASSAGES, ROWS, ORDER, MANIFEST, SKIPPED, PROGRESS, TEXTS)
_MESSAGES_KEPT = 5
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Progress:
    """How far the files of a build go, and what they are of. What lies behind in the files counts for nothing."""

    source: dict[str, Any]
    settings: dict[str, Any]
    position: Position = field(default_factory=Position)
    passages: int = 0
    stored: int = 0  # bytes of the passages
    skipped: int = 0
    skipped_bytes: int = 0
    duplicates: int = 0
    empty: int = 0
    long: int = 0
    first_long: str = ""

    def dumped(self) -> bytes:
        facts = {"format": FORMAT} | asdict(self)
        facts["position"]["left"] = self.position.left.decode("utf-8", "surrogateescape")
        return json.dumps(facts).encode()

    @classmethod
    def read(cls, path: Path) -> Progress:
        try:
            facts = json.loads(path.read_bytes())
            if facts.pop("format") != FORMAT:
                raise CorpusError(f"{path}: was left by another version; start over with --force")
            position = facts.pop("position")
            left = position.pop("left").encode("utf-8", "surrogateescape")
            return cls(position=Position(left=left, **position), **facts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(f"{path}: is damaged ({error}); start over with --force") from None


def clear(folder: Path) -> None:
    """Remove all that a build makes."""
    for name in _OURS:
        (folder / name).unlink(missing_ok=True)


def compare_count(source: Source, passages: int, expect: int | None) -> None:
    if expect is not None and passages != expect:
        raise CorpusError(
            f"{source.path}: gives {passages:,} passages and not {expect:,} as expected; it may be cut off, "
            "so fetch it again"
        )


class Writer:
    """The files of a build under way; ``done`` is what they hold for certain."""

    def __init__(self, folder: Path, source: Source, plan: Plan, begin: Progress, expect: int | None) -> None:
        self.folder, self.source, self.plan, self.expect = folder, source, plan, expect
        self.done = begin
        self.messages: list[str] = []
        self._lasting = begin
        self._ids, self._texts = Seen(), Seen()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Writer:
        done = self.done
        lengths = {PASSAGES: done.stored, ROWS: done.passages * ROW.itemsize}
        if self.plan.skip_bad:
            lengths[SKIPPED] = done.skipped_bytes
        if self.plan.dedupe:
            lengths[TEXTS] = done.passages * 8
        for name, length in lengths.items():
            file = self._files[name] = (self.folder / name).open("ab")
            if file.tell() < length:
                raise CorpusError(f"{self.folder / name}: is shorter than the build left it; start over with --force")
            file.truncate(length)
        if done.passages:
            rows = np.memmap(self.folder / ROWS, ROW, "r")
            self._ids.add(rows["id"], np.arange(len(rows)))
            if self.plan.dedupe:
                self._texts.add(np.fromfile(self.folder / TEXTS, "<u8"), np.arange(len(rows)))
        self._records = Records(self.folder)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if (self.folder / PROGRESS).exists():
                with suppress(OSError):  # the disk that is full, for one; an earlier checkpoint then stands
                    self._make_last()
        finally:
            for file in self._files.values():
                with suppress(OSError):
                    file.close()

    def run(self, workers: int, progress: bool | None) -> None:
        """Parse what the source still holds."""
        if self.plan.kind == TEXT:
            workers = 1
        source, disable = self.source, None if progress is None else not progress
        bar = tqdm(total=source.bytes, desc=source.path.name, unit="B", unit_scale=True, disable=disable, leave=False)
        with bar:
            since = 0
            for block, parsed in pooled(blocks(source, self.done.position, bar.update), self.plan, workers):
                before = self.done.position
                if before.left or before.made or parsed is None:
                    result = parse(block.following(before), self.plan)
                else:
                    result = parsed()
                self._take(block, result)
                bar.set_postfix_str(f"{self.done.passages:,} passages", refresh=False)
                since += len(block.data)
                if since >= CHECKPOINT_BYTES:
                    self._make_last()
                    since = 0

    def _take(self, block: Block, parsed: Parsed) -> None:
        """Append a block's passages. ``done`` changes at the very end, so that an interruption leaves it true."""
        done = self.done
        bad = list(parsed.bad)
        keep, duplicates = self._first_of_each(block, parsed, bad)
        lines = [parsed.lines[i] for i in keep]
        rows = np.empty(len(keep), ROW)
        rows["end"] = done.stored + np.cumsum([len(line) for line in lines], dtype=np.int64)
        rows["id"], rows["crc"] = parsed.ids[keep], parsed.crcs[keep]
        places = np.arange(done.passages, done.passages + len(keep))
        self._append(PASSAGES, b"".join(lines))
        self._append(ROWS, rows.tobytes())
        self._ids.add(rows["id"], places)
        if self.plan.dedupe:
            self._append(TEXTS, parsed.texts[keep].tobytes())
            self._texts.add(parsed.texts[keep], places)
        entries = [json.dumps({"line": n, "why": why}, ensure_ascii=False).encode() + b"\n" for n, why in sorted(bad)]
        if entries:
            self._append(SKIPPED, b"".join(entries))
            self.messages = (self.messages + [why for _, why in sorted(bad)])[:_MESSAGES_KEPT]
        new = replace(
            done,
            position=replace(block.after, left=parsed.left, made=0 if block.last else parsed.made),
            passages=done.passages + len(keep),
            stored=int(rows["end"][-1]) if len(keep) else done.stored,
            skipped=done.skipped + len(entries),
            skipped_bytes=done.skipped_bytes + sum(map(len, entries)),
            duplicates=done.duplicates + duplicates,
            empty=done.empty + parsed.empty,
            long=done.long + len(parsed.long),
            first_long=done.first_long or next(iter(parsed.long), ""),
        )
        if block.last and block.after.file == len(self.source.files) - 1:
            compare_count(self.source, new.passages, self.expect)  # before it counts as read to its end
        self.done = new

    def _append(self, name: str, data: bytes) -> None:
        self._files[name].write(data)
        self._files[name].flush()  # the next block may ask for a passage of this one

    def _first_of_each(self, block: Block, parsed: Parsed, bad: list[tuple[int, str]]) -> tuple[list[int], int]:
        """The passages that repeat no earlier one, and how many do; one that repeats an id only is bad."""
        ids, texts, count = parsed.ids, parsed.texts, len(parsed.lines)
        before, alike = self._ids.find(ids), self._texts.find(texts)  # rows, or -1
        here = [values for values in (ids, texts) if len(values)]
        if (before < 0).all() and (alike < 0).all() and all(len(np.unique(values)) == len(values) for values in here):
            return list(range(count)), 0
        keep: list[int] = []
        duplicates = 0
        ids_here: dict[str, int] = {}
        texts_here: set[tuple[str, str]] = set()
        for i, line in enumerate(parsed.lines):
            record = json.loads(line)
            id, text = record["id"], (record["title"], record["text"])
            if self.plan.dedupe:
                if text in texts_here or (alike[i] >= 0 and self._passage(alike[i])[1:] == text):
                    duplicates += 1
                    continue
                texts_here.add(text)
            place, number = f"{block.path}, line", parsed.numbers[i]
            if id in ids_here:
                message = f"{place} {number}: the id {id!r} was used before, at {place} {ids_here[id]}"
            elif before[i] >= 0 and self._passage(before[i])[0] == id:
                message = (
                    f"{place} {number}: the id {id!r} was used before, for passage {before[i] + 1:,} of the corpus"
                )
            else:
                ids_here[id] = number
                keep.append(i)
                continue
            if not self.plan.skip_bad:
                raise CorpusError(message)
            bad.append((number, message))
        return keep, duplicates

    def _passage(self, row: int) -> tuple[str, str, str]:
        passage = self._records.passages(int(row), int(row) + 1)[0]
        return passage.id, passage.title, passage.text

    def _make_last(self) -> None:
        if self.done == self._lasting:
            return
        for file in self._files.values():
            os.fsync(file.fileno())
        write_whole(self.folder / PROGRESS, self.done.dumped())
        self._lasting = self.done

    def finish(self) -> Store:
        """Sort the ids, take the checksums of what the disk holds, choose canaries; the manifest comes last."""
        self._make_last()
        done, folder = self.done, self.folder
        if not done.passages:
            clear(folder)
            raise CorpusError(f"{self.source.path}: holds no passages")
        digest = sha256()
        for start in range(
            0, done.passages, _ROWS_AT_ONCE
        ):  # each held to its CRC-32: what was parsed is what is there
            digest.update(b"".join(self._records.lines(start, min(start + _ROWS_AT_ONCE, done.passages))))
        rows = np.memmap(folder / ROWS, ROW, "r")
        write_whole(folder / ORDER, np.argsort(rows["id"], kind="stable").astype(ORDER_TYPE).tobytes())
        files = {PASSAGES: {"bytes": done.stored, "sha256": digest.hexdigest()}}
        for name in (ROWS, ORDER, SKIPPED):
            if (folder / name).exists():
                files[name] = {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
        manifest = Manifest(
            passages=done.passages,
            files=files,
            source=done.source | {"crc32": f"{done.position.crc:08x}"},
            settings=done.settings,
            counts={"skipped": done.skipped, "duplicates": done.duplicates, "empty": done.empty},
            canaries=choose_canaries(self._records, done.passages),
            warnings=(long_warning(done.long, done.first_long),) if done.long else (),
        )
        write_whole(folder / MANIFEST, manifest.dumped())
        for name in (PROGRESS, TEXTS):
            (folder / name).unlink(missing_ok=True)
        return Store(folder)
