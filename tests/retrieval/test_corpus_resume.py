"""Builds that are killed, interrupted or run out of disk: they go on, and end as if nothing had happened."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import PATIENCE, environment
from sources import left_in, some_passages, write_json_lines, write_table

from dragin_lab.errors import BrokenOffError, CorpusError
from dragin_lab.retrieval.corpora import sources as corpus_sources
from dragin_lab.retrieval.corpora import writer as corpus_writer
from dragin_lab.retrieval.corpora.build import build
from dragin_lab.retrieval.corpora.store import MANIFEST, PASSAGES, PROGRESS
from dragin_lab.retrieval.corpus import Corpus

BLOCK = 2000  # bytes; a checkpoint follows each

#: A build whose process kills itself with SIGKILL in the moment before it replaces a file for the n-th time, n = 0, ...
KILLED = """
import os, signal, sys
from dragin_lab.retrieval.corpora import sources as corpus_sources, writer as corpus_writer, build as corpus_build
source, out, at, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4])
corpus_sources.BLOCK_BYTES = corpus_writer.CHECKPOINT_BYTES = %d
write, calls = corpus_writer.write_whole, iter(range(10**6))
def counted(path, data):
    if next(calls) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, data)
corpus_writer.write_whole = counted
if __name__ == "__main__":
    corpus_build.build(source, out, **options)
"""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_sources, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(corpus_writer, "CHECKPOINT_BYTES", BLOCK)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "killed.py"
    path.write_text(KILLED % BLOCK)
    return path


def run_killed(script: Path, source: Path, out: Path, at: int, **options: Any) -> int:
    command = [sys.executable, script, source, out, str(at), repr(options)]
    return subprocess.run(command, env=environment(), capture_output=True).returncode


def sources(folder: Path) -> dict[str, Path]:
    passages = some_passages(300)
    table = write_table(folder / "p.tsv", passages)
    packed = folder / "p.tsv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    texts = folder / "texts"
    texts.mkdir()
    for i in range(3):
        (texts / f"{i}.txt").write_text("\n".join(p.text for p in some_passages(100, seed=i)))
    bad = write_json_lines(folder / "bad.jsonl", passages)
    bad.write_text(bad.read_text().replace("\n", "\nnot JSON\n", 40))
    return {"table": table, "packed": packed, "texts": texts, "bad": bad}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("packed", {}), ("packed", {"workers": 2}), ("texts", {}), ("bad", {"skip_bad": True, "dedupe": True})],
)
def test_a_killed_build_goes_on(script: Path, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    source = sources(tmp_path)[name]
    whole = build(source, tmp_path / "whole", **options).store
    wanted = left_in(whole.folder)
    out = tmp_path / "out"
    resumed = []
    for at in (0, 3, 1, 5, 0):  # each of these goes on where the last one was killed
        assert run_killed(script, source, out, at, **options) == -signal.SIGKILL
        with pytest.raises(CorpusError, match="was not finished"):
            Corpus.load(out)
        resumed.append(json.loads((out / PROGRESS).read_text())["passages"])
    assert resumed == sorted(resumed)
    assert 0 < resumed[-1] < len(whole)
    made = build(source, out, **options)
    assert made.resumed == resumed[-1]
    assert left_in(out) == wanted


@pytest.mark.slow
def test_a_build_killed_in_its_last_moments_goes_on(script: Path, tmp_path: Path) -> None:
    source = sources(tmp_path)["table"]
    wanted = left_in(build(source, tmp_path / "whole").store.folder)
    out = tmp_path / "out"
    ends = []
    for at in range(100):
        if code := run_killed(script, source, out, at):
            ends.append(code)
            continue
        break
    assert set(ends) == {-signal.SIGKILL}
    assert left_in(out) == wanted
    (out / PROGRESS).write_text("left behind")  # killed between the manifest and the end
    (out / ".0123456789abcdef.tmp").write_text("left behind")  # killed while it wrote one of its files
    assert build(source, out).resumed == 300
    assert left_in(out) == wanted


@pytest.mark.slow
def test_processes_end_with_the_build_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(10_000))
    script = "import sys\nfrom dragin_lab.retrieval.corpora import sources, writer, build\n"
    script += f"sources.BLOCK_BYTES = writer.CHECKPOINT_BYTES = {BLOCK}\n"
    (tmp_path / "slow.py").write_text(
        f"{script}if __name__ == '__main__':\n    build.build(sys.argv[1], sys.argv[2], workers=2)\n"
    )
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, tmp_path / "slow.py", source, out], env=environment())
    done = 0
    while done < 200 and process.poll() is None:
        time.sleep(0.05)
        done = json.loads((out / PROGRESS).read_text())["passages"] if (out / PROGRESS).exists() else 0
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert len(children) >= 2
    assert not psutil.wait_procs(children, timeout=PATIENCE)[1]
    monkeypatch.setattr(corpus_writer, "CHECKPOINT_BYTES", 1 << 20)
    made = build(source, out)
    assert 200 <= made.resumed < 10_000
    assert left_in(out) == left_in(build(source, tmp_path / "whole").store.folder)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources(tmp_path)["table"]
    append, calls = corpus_writer.Writer._append, iter(range(1000))

    def full(self: corpus_writer.Writer, name: str, data: bytes) -> None:
        if next(calls) == 9:
            append(self, name, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, name, data)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(corpus_writer.Writer, "_append", full)
        with pytest.raises(BrokenOffError, match=r"out: .*No space left.*free some space.*run it again"):
            build(source, out)
    made = build(source, out)
    assert made.resumed > 0
    assert left_in(out) == left_in(build(source, tmp_path / "whole").store.folder)


def test_an_interrupted_build_keeps_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources(tmp_path)["table"]
    parse, calls = corpus_writer.parse, iter(range(1000))

    def interrupted(*args: Any) -> Any:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return parse(*args)

    monkeypatch.setattr(corpus_writer, "CHECKPOINT_BYTES", 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(corpus_writer, "parse", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(source, tmp_path / "out")
    assert build(source, tmp_path / "out").resumed > 50


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mended_source_goes_on_and_another_does_not(tmp_path: Path, workers: int) -> None:
    passages = some_passages(300)
    whole = write_json_lines(tmp_path / "p.jsonl", passages).read_text()
    lines = whole.splitlines(keepends=True)
    source, out = tmp_path / "p.jsonl", tmp_path / "out"
    source.write_text("".join([*lines[:250], "not JSON\n", *lines[250:]]))
    with pytest.raises(CorpusError, match="line 251: not JSON"):
        build(source, out, workers=workers)
    progress = (out / PROGRESS).read_bytes()
    source.write_text(whole.replace("word3x0", "word3x9"))
    with pytest.raises(CorpusError, match=r"not what it was.*--force"):
        build(source, out)
    with pytest.raises(CorpusError, match=r"an unfinished build of p\.jsonl .*made with skip_bad=False and not True"):
        build(source, out, skip_bad=True)
    other = write_json_lines(tmp_path / "other.jsonl", passages)
    with pytest.raises(CorpusError, match=r"unfinished build of another source, p\.jsonl .* and not other\.jsonl"):
        build(other, out)
    assert (out / PROGRESS).read_bytes() == progress
    source.write_text(whole)
    made = build(source, out)
    assert made.resumed > 200
    assert list(made.store) == passages


def test_a_packed_file_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((corpus_sources, "BLOCK_BYTES"), (corpus_writer, "CHECKPOINT_BYTES")):
        monkeypatch.setattr(module, name, 200_000)
    passages = some_passages(30_000)  # unpacking runs up to a MiB ahead, which a file that is cut off loses
    whole = gzip.compress(write_table(tmp_path / "p.tsv", passages).read_bytes())
    source, out = tmp_path / "p.tsv.gz", tmp_path / "out"
    for workers in (2, 1):
        source.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(
            CorpusError, match=r"p\.tsv\.gz, line [\d,]+: the gzip file is cut off here; fetch it again"
        ):
            build(source, out, workers=workers)
        assert not (out / MANIFEST).exists()
    source.write_bytes(whole)
    made = build(source, out)
    assert made.resumed > 500
    assert list(made.store) == passages


def test_files_that_a_build_left_and_others_changed(tmp_path: Path) -> None:
    source, out = sources(tmp_path)["bad"], tmp_path / "out"
    text = source.read_text()
    source.write_text(text.replace("not JSON\n", ""))
    with pytest.raises(CorpusError, match="as expected"):
        build(source, out, expect=5)
    with (out / PASSAGES).open("r+b") as file:
        file.truncate(100)
    with pytest.raises(CorpusError, match=r"shorter than the build left it.*--force"):
        build(source, out)
    (out / PROGRESS).write_text("{")
    with pytest.raises(CorpusError, match=r"is damaged.*--force"):
        build(source, out)
    assert len(build(source, out, force=True).store) == 300
