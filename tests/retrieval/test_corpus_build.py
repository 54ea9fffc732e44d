"""Builds of corpora: what is made of each kind of source, and what is refused, or left out, with its place."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import pickle
from pathlib import Path

import pytest
from sources import left_in, some_passages, write_json_lines, write_table

from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError
from dragin_lab.files import locked
from dragin_lab.retrieval.corpora import sources as corpus_sources
from dragin_lab.retrieval.corpora.build import build
from dragin_lab.retrieval.corpora.store import MANIFEST, SKIPPED
from dragin_lab.retrieval.corpus import Corpus


def texts_of(folder: Path) -> list[tuple[str, str, str]]:
    return [(p.id, p.title, p.text) for p in Corpus.load(folder)]


def refused(source: Path, out: Path, *parts: str, **options: object) -> str:
    """The refusal's message: one or two lines that hold all of ``parts``."""
    with pytest.raises(CorpusError) as caught:
        build(source, out, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.count("\n") <= 1
    for part in parts:
        assert part in message
    return message


# -- what is made -----------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "psgs.tsv", some_passages(300))


def test_a_built_corpus_is_the_one_that_is_loaded_from_the_source(table: Path, tmp_path: Path) -> None:
    packed = tmp_path / "psgs.tsv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    lines = write_json_lines(tmp_path / "p.jsonl", some_passages(300))
    loaded = Corpus.load(table)
    for i, source in enumerate((table, packed, lines)):
        corpus = Corpus.load(build(source, tmp_path / f"out{i}").store.folder)
        assert list(corpus) == list(loaded)
        assert corpus.fingerprint == loaded.fingerprint
        assert (len(corpus), corpus.name, corpus.source) == (300, f"out{i}", str(tmp_path / f"out{i}"))
    assert corpus[7] == loaded[7]
    assert corpus[-1] == loaded[-1]
    assert corpus[3:6] == loaded[3:6]
    assert corpus[200:10:-50] == loaded[200:10:-50]
    assert corpus[5:5] == []
    assert [corpus.get(p.id) for p in loaded] == list(loaded)
    assert pickle.loads(pickle.dumps(corpus)).get("17") == loaded.get("17")
    for missing in ("", "0", "301"):
        with pytest.raises(KeyError):
            corpus.get(missing)
    with pytest.raises(IndexError):
        _ = corpus[300]


def test_text_is_cut_as_it_is_where_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "a.txt").write_text("\ufeff" + "\r\n".join(f"w{i}\u3000 ż{i}  x" for i in range(333)))
    (folder / "b" / "a.txt").write_text("one line " * 1000)
    (folder / "b" / "none.txt").write_text("\n \n")
    (folder / "b" / "short.TXT").write_text("a few words")
    expected = list(Corpus.load(folder))
    for size in (1, 50, 700, 1 << 20):
        monkeypatch.setattr(corpus_sources, "BLOCK_BYTES", size)
        assert list(build(folder, tmp_path / f"out{size}").store) == expected


def test_articles_are_cut_and_counted(tmp_path: Path) -> None:
    (tmp_path / "wiki" / "AB").mkdir(parents=True)
    (tmp_path / "wiki" / "AA").mkdir()
    words = " ".join(f"w{i}" for i in range(230))

    def article(id: str, title: str, text: str) -> str:
        url = f"https://en.wikipedia.org/wiki?curid={id}"
        return json.dumps({"id": id, "revid": "1", "url": url, "title": title, "text": text}) + "\n"

    first = (
        article("12", "A Title", f"A Title\n\n{words}") + article("13", "Redirect", "") + article("14", "Cut", "Cut")
    )
    (tmp_path / "wiki" / "AA" / "wiki_00").write_text(first)
    (tmp_path / "wiki" / "AB" / "wiki_00.bz2").write_bytes(
        bz2.compress(article("99", "Title", "Titles differ").encode())
    )
    (tmp_path / "wiki" / "AB" / "notes").write_text("not read")
    store = build(tmp_path / "wiki", tmp_path / "out").store
    assert [(p.id, p.title) for p in store] == [
        ("12#1", "A Title"), ("12#2", "A Title"), ("12#3", "A Title"), ("14#1", "Cut"), ("99#1", "Title")
    ]  # fmt: skip
    assert [len(p.text.split()) for p in store] == [100, 100, 30, 1, 2]
    assert store[0].text.startswith("w0 w1")
    assert store.manifest.counts == {"skipped": 0, "duplicates": 0, "empty": 1}
    assert store.manifest.source["kind"] == "wikiextractor"
    single = tmp_path / "articles.jsonl"
    single.write_text(first)
    refused(single, tmp_path / "out2", "articles.jsonl", "--kind wikiextractor")
    assert len(build(single, tmp_path / "out2", kind="wikiextractor").store) == 4


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_nothing_depends_on_blocks_or_processes(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = some_passages(120)
    passages[40] = Passage("41", "two\nlines", 'with\n"quotes"\n\nand\ttabs')
    passages[77] = Passage("78", "long", '"line" of words\n' * 200)
    write = write_table if kind == "tsv" else write_json_lines
    source = write(tmp_path / f"p.{kind}", passages)
    wanted = left_in(build(source, tmp_path / "whole").store.folder)
    for size, workers in ((40, 1), (999, 1), (999, 2)):
        monkeypatch.setattr(corpus_sources, "BLOCK_BYTES", size)
        out = tmp_path / f"out{size}.{workers}"
        assert list(build(source, out, workers=workers).store) == passages
        assert left_in(out) == wanted


def test_duplicates_are_left_out_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_sources, "BLOCK_BYTES", 64)  # repetitions within a block and across blocks
    passages = [("1", "T", "one"), ("2", "T", "one"), ("3", "U", "one"), ("4", "T", "two " * 20), ("1", "T", "one")]
    passages += [("5", "T", "two " * 20), ("2", "T", "two"), ("6", "T", "two")]
    source = write_json_lines(tmp_path / "p.jsonl", [Passage(id, title, text) for id, title, text in passages])
    store = build(source, tmp_path / "out", dedupe=True).store
    assert [p.id for p in store] == ["1", "3", "4", "2"]
    assert store.manifest.counts["duplicates"] == 4
    assert sorted(left_in(store.folder)) == ["corpus.json", "order.bin", "passages.jsonl", "rows.bin"]
    refused(source, tmp_path / "out2", "line 5", "'1'", "used before")


def test_long_passages_are_announced_when_built_corpora_are_loaded(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", [Passage("1", "", "short"), Passage("2", "", "w " * 10_001)])
    store = build(source, tmp_path / "out").store
    with pytest.warns(UserWarning, match=r"will not fit into a prompt.*line 2 .*10,001 words"):
        assert len(Corpus.load(store.folder).warnings) == 1


def test_the_real_passages(tmp_path: Path) -> None:
    path = Path(os.environ.get("DRAGIN_LAB_DATA", "data")) / "passages" / "psgs_w100.tsv.gz"
    if not path.exists():
        pytest.skip("no real passages: set DRAGIN_LAB_DATA to the folder that holds passages/")
    store = build(path, tmp_path / "out").store
    assert store.manifest.fingerprint == Corpus.load(path).fingerprint
    assert len(store.manifest.canaries) == 8


# -- what is refused, or left out -------------------------------------------------------------------------------------

HEADER = "id\ttext\ttitle\n"


def test_bad_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_sources, "LONGEST_RECORD", 1 << 20)
    monkeypatch.setattr(corpus_sources, "BLOCK_BYTES", 1 << 19)
    good = "1\tone\tT\n"
    tail = "".join(f"{i}\tpassage {i}\tT\n" for i in range(50, 60))
    cases: list[tuple[str | bytes, tuple[str, ...]]] = [
        ("2\ttwo\n", ("line 3", "2 fields")),
        ("2\t \tT\n", ("line 3", "empty")),
        ("1\tagain\tT\n", ("line 3", "'1'", "used before")),
        ('2\t"open\tT\n', ("line 3", "never closes")),
        ('2\t"Weird" song\tT\n', ("line 3", "follows a closing quote")),
        ("2\tcafé\tT\n".encode("latin-1"), ("line 3", "0xe9", "iconv")),
        ("2\t" + "x" * (10 << 20) + "\tT\n", ("line 3", "longer than 1 MiB")),
    ]
    for number, (line, parts) in enumerate(cases):
        source = tmp_path / f"bad{number}.tsv"
        data = line if isinstance(line, bytes) else line.encode()
        source.write_bytes((HEADER + good).encode() + data + tail.encode())
        out = tmp_path / f"out{number}"
        refused(source, out, source.name, *parts)
        assert not (out / MANIFEST).exists()
        made = build(source, tmp_path / f"left{number}", skip_bad=True)
        assert [p.id for p in made.store] == ["1", *map(str, range(50, 60))]
        assert made.store.manifest.counts["skipped"] == 1
        entry = json.loads((made.store.folder / SKIPPED).read_text())
        assert entry["line"] == 3
        assert made.skipped == (entry["why"],)
        for part in parts:
            assert part in entry["why"]


def test_bad_json_lines_and_articles(tmp_path: Path) -> None:
    good = [json.dumps({"id": i, "title": "T", "text": f"passage {i}"}) for i in range(4)]
    bad = ["{", "[]", '{"id": 9}', '{"id": 9, "text": 3}', '{"id": "", "text": "x"}', '{"id": 9, "text": "a\\u0000"}']
    source = tmp_path / "p.jsonl"
    source.write_text("\n".join([*good, *bad]) + "\n")
    refused(source, tmp_path / "out", "line 5", "not JSON")
    made = build(source, tmp_path / "left", skip_bad=True)
    assert (len(made.store), made.store.manifest.counts["skipped"]) == (4, 6)
    assert [json.loads(line)["line"] for line in (made.store.folder / SKIPPED).open()] == [5, 6, 7, 8, 9, 10]
    assert len(made.skipped) == 5
    assert len(build(source, tmp_path / "cut", kind="wikiextractor", skip_bad=True).store) == 4


def test_sources_that_are_none(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(tmp_path / "nowhere.tsv", out, "no such file")
    (tmp_path / "p.csv").write_text("x")
    refused(tmp_path / "p.csv", out, "p.csv", "--kind")
    (tmp_path / "p.tsv").write_text("id\ttext\n1\tone\n")
    refused(tmp_path / "p.tsv", out, "no column title")
    (tmp_path / "e.jsonl").write_text("")
    refused(tmp_path / "e.jsonl", out, "is empty")
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(b""))
    refused(tmp_path / "e.jsonl.gz", out, "is empty")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", out, "no .txt files")
    refused(tmp_path / "folder", out, "--kind dpr", kind="dpr")
    (tmp_path / "b.jsonl").write_text("\n\n")
    refused(tmp_path / "b.jsonl", out, "holds no passages")
    assert not list(out.iterdir()), "what came to nothing leaves nothing"


def test_another_count_than_expected(table: Path, tmp_path: Path) -> None:
    refused(table, tmp_path / "out", "300 passages", "301", expect=301)
    with table.open("a") as file:
        file.write("301\tthe last one\tT\n")
    made = build(table, tmp_path / "out", expect=301)
    assert len(made.store) == 301
    refused(table, tmp_path / "out", "301 passages", "21,015,324", expect=21_015_324)


def test_folders_that_hold_something_else(table: Path, tmp_path: Path) -> None:
    refused(table, tmp_path, "is not empty")
    out = tmp_path / "out"
    made = build(table, out)
    before = left_in(out)
    again = build(table, out)
    assert (made.resumed, again.resumed, left_in(out)) == (0, 300, before)
    other = write_table(tmp_path / "other.tsv", some_passages(300, seed=1))
    refused(other, out, "another source", "psgs.tsv", "other.tsv", "--force")
    changed = write_table(tmp_path / "psgs.tsv", some_passages(300, seed=1))
    refused(changed, out, "another source")
    refused(table, out, "another source", dedupe=True)
    write_table(tmp_path / "psgs.tsv", some_passages(300))
    refused(table, out, "dedupe=False", "True", dedupe=True)
    assert left_in(out) == before
    assert build(other, out, force=True).store[0].text.endswith("word1x1")


def test_two_builds_into_one_folder(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with locked(out, ""):
        refused(table, out, "another build is writing here")
    assert len(build(table, out).store) == 300
