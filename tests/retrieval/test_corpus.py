"""Corpora: what is read, and what is refused with the place where it is wrong."""

from __future__ import annotations

import csv
import gzip
import json
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab import almanac
from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.corpus import Corpus

HEADER = "id\ttext\ttitle\n"
ROWS = [("1", 'a "quoted" tab\tand\nline', "T"), ("x#2", "zażółć 電影 🎬", ""), ("3", "plain", 'says "hi"')]
EXPECTED = [Passage(id, title, text, score=0.0) for id, text, title in ROWS]


def plain(corpus: Corpus) -> list[tuple[str, str, str]]:
    return [(p.id, p.text, p.title) for p in corpus]


def write_table(path: Path, rows: list[tuple[str, str, str]], quoting: int = csv.QUOTE_MINIMAL) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=quoting, lineterminator="\n")
        writer.writerows([("id", "text", "title"), *rows])
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "psgs.tsv", ROWS)


def refusal(path: Path, *parts: str) -> str:
    """The message of the refusal; one or two lines that name the file and all of ``parts``."""
    with pytest.raises(CorpusError) as caught:
        Corpus.load(path)
    message = str(caught.value)
    assert message.count("\n") <= 1
    for part in (path.name, *parts):
        assert part in message
    return message


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# -- what is read -----------------------------------------------------------------------------------------------------


def test_table(table: Path) -> None:
    corpus = Corpus.load(table)
    assert plain(corpus) == ROWS
    assert (len(corpus), corpus[1].id, corpus[-1].id, corpus.get("x#2").text) == (3, "x#2", "3", "zażółć 電影 🎬")
    assert (corpus.name, corpus.source, corpus.warnings) == ("psgs", str(table), ())
    assert "3 passages" in repr(corpus)
    assert [p.id for p in corpus[:2]] == ["1", "x#2"]


def test_table_gzipped_with_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    text = "\ufeffid\ttext\ttitle\r\n7\tsome text\ta title\r\n\r\n"
    path = tmp_path / "psgs.tsv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert plain(Corpus.load(path)) == [("7", "some text", "a title")]


def test_table_columns_are_found_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", 'title\tid\tyear\ttext\nT\t1\t1999\t5" gun\n')
    assert plain(Corpus.load(path)) == [("1", '5" gun', "T")]


def test_json_lines(tmp_path: Path) -> None:
    records = [{"_id": "a", "title": None, "text": "one", "metadata": {}}, {"id": 2, "text": "two", "title": "T"}]
    text = "\n\n".join(json.dumps(r) for r in records)
    plain_file = written(tmp_path / "c.jsonl", text)
    packed = written(tmp_path / "c.jsonl.gz", gzip.compress(text.encode()))
    assert plain(Corpus.load(plain_file)) == [("a", "one", ""), ("2", "two", "T")]
    assert plain(Corpus.load(packed)) == plain(Corpus.load(str(plain_file)))


def test_folder_is_cut_into_passages_of_100_words(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    written(tmp_path / "b" / "long.txt", "\ufeff" + "\n".join(f"w{i}  w" for i in range(125)))
    written(tmp_path / "a.TXT", "just a\nfew words ")
    written(tmp_path / "empty.txt", "")
    written(tmp_path / "other.md", "not read")
    corpus = Corpus.load(tmp_path)
    assert [p.id for p in corpus] == ["a.TXT#1", "b/long.txt#1", "b/long.txt#2", "b/long.txt#3"]
    assert [p.title for p in corpus] == ["a", "long", "long", "long"]
    assert corpus[0].text == "just a few words"
    assert [len(p.text.split()) for p in corpus] == [4, 100, 100, 50]
    assert corpus[1].text.startswith("w0 w w1")


def test_embedded_corpus_is_the_default() -> None:
    corpus = Corpus.load()
    assert (corpus.name, corpus[0], len(corpus)) == ("almanac", almanac.passages()[0], len(almanac.passages()))


def test_from_passages_and_fingerprint(table: Path) -> None:
    corpus = Corpus.from_passages(EXPECTED, name="mine")
    assert corpus.fingerprint == Corpus.load(table).fingerprint
    assert corpus.name == "mine"
    others = [
        Corpus.from_passages(reversed(EXPECTED)),
        Corpus.from_passages(EXPECTED[:2]),
        Corpus.from_passages([Passage("1", "ab", "c")]),
        Corpus.from_passages([Passage("1", "a", "bc")]),
    ]
    assert len({c.fingerprint for c in [corpus, *others]}) == 5
    with pytest.raises(CorpusError, match=r"number 2: the id '1' was used before, at passages, number 1"):
        Corpus.from_passages([Passage("1", "", "a"), Passage("1", "", "b")])
    with pytest.raises(KeyError):
        corpus.get("nowhere")


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_a_passage_of_100_000_words_is_read_and_announced_once(tmp_path: Path, suffix: str) -> None:
    text = '"very" ' * 99_999 + "long"
    path = tmp_path / f"c{suffix}"
    if suffix == ".tsv":
        write_table(path, [("1", "short", ""), ("2", text, "")])
    else:
        written(path, "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in ((1, "short"), (2, text))))
    with pytest.warns(UserWarning, match=r"will not fit into a prompt.*line (3|2) ") as caught:
        corpus = Corpus.load(path)
    assert len(caught) == len(corpus.warnings) == 1
    assert "100,000 words" in corpus.warnings[0]
    assert corpus.get("2").text == text


def test_passages_that_are_long_but_not_too_long_are_not_announced(tmp_path: Path) -> None:
    path = write_table(tmp_path / "c.tsv", [("1", "w " * 9_999 + "w" * 30_000, "")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Corpus.load(path).warnings == ()


def test_progress_bar_goes_to_the_error_output_when_asked(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Corpus.load(table)
    assert capsys.readouterr().err == ""
    Corpus.load(table, progress=True)
    shown = capsys.readouterr()
    assert "psgs" in shown.err
    assert shown.out == ""


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=20)
filled = field.filter(lambda s: bool(s.strip()))


@given(rows=st.lists(st.tuples(filled, filled, field), min_size=1, max_size=6, unique_by=lambda r: r[0]))
def test_tables_read_what_a_csv_writer_wrote(rows: list[tuple[str, str, str]], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        assert plain(Corpus.load(write_table(folder / "c.tsv", rows, quoting))) == rows


# -- what is refused --------------------------------------------------------------------------------------------------


def test_refuses_broken_tables(tmp_path: Path) -> None:
    def broken(text: str | bytes, *parts: str) -> None:
        refusal(written(tmp_path / "bad.tsv", text), *parts)

    good = "1\tone\tT\n"
    broken("", "empty")
    broken("\n\n", "line 1", "no column")
    broken(HEADER, "no passages")
    broken("id\ttext\n1\tone\n", "line 1", "no column title")
    broken("1\tone\tT\n", "line 1", "no column id, text, title")
    broken(HEADER + good + "2\ttwo\n", "line 3", "2 fields", "not 3")
    broken(HEADER + good + "2\ttwo\tT\tmore\n", "line 3", "4 fields")
    broken(HEADER + good + "2\tx\tT\n1\tone\tT\n", "line 4", "'1'", "line 2")
    broken(HEADER + good + '2\t" "\tT\n', "line 3", "text of passage '2' is empty")
    broken(HEADER + "\ttext\tT\n", "line 2", "id is empty")
    broken(HEADER + '1\t"two\nlines"\tT\n2\t"open\n3\tthree\tT\n' + "4\tx\ty\n" * 5, "line 4", "never closes")
    broken(HEADER + '1\t"Weird" song\tT\n', "line 2", "follows a closing quote")
    broken(HEADER + "1\ta\0b\tT\n", "line 2", "NUL")
    broken((HEADER + good).encode("utf-16"), "line 1", "byte 1", "not UTF-8", "UTF-16")
    broken((HEADER + good).encode("utf-16-le"), "line 1", "NUL")
    broken((HEADER + good + "2\tcafé\tT\n").encode("latin-1"), "line 3", "byte 6", "0xe9", "iconv")
    broken(gzip.compress((HEADER + good).encode()), "line 1", "name it .gz")


def test_refuses_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragin_lab.retrieval.corpora.lines.LONGEST_LINE", 1000)
    refusal(written(tmp_path / "c.tsv", HEADER + "1\t" + "x" * 2000 + "\tT\n"), "line 2", "longer")
    refusal(written(tmp_path / "c.tsv", HEADER + '1\t"' + "x\n" * 2000 + '"\tT\n'), "line 2", "never closes")


def test_refuses_broken_json_lines(tmp_path: Path) -> None:
    def broken(text: str, *parts: str) -> None:
        refusal(written(tmp_path / "bad.jsonl", text), *parts)

    good = '{"id": "1", "text": "one"}\n'
    broken("\n", "no passages")
    broken(good + '{"id": "2", "text": "t', "line 2", "not JSON")
    broken(good + "[" * 100_000, "line 2", "not JSON")
    broken(good + '["2", "two"]', "line 2", "list")
    broken(good + '{"text": "two"}', "line 2", "no field 'id'", "text")
    broken(good + '{"id": "2", "contents": "two"}', "line 2", "no field 'text'", "contents")
    broken(good + '{"id": 2.5, "text": "two"}', "line 2", "'id'", "2.5")
    broken(good + '{"id": true, "text": "two"}', "line 2", "'id'", "True")
    broken(good + '{"id": "2", "text": null}', "line 2", "'text'")
    broken(good + '{"id": "2", "text": ["a"]}', "line 2", "'text'")
    broken(good + '{"id": "2", "text": "a", "title": 3}', "line 2", "'title'")
    broken(good + '{"id": "2", "text": " \\n"}', "line 2", "empty")
    broken(good + '{"id": 1, "text": "again"}', "line 2", "'1'", "line 1")
    broken(good + '{"id": "2", "text": "a\\u0000"}', "line 2", "NUL")
    broken(good + '{"id": "2", "text": "a\\ud800"}', "line 2", "surrogate")


def test_refuses_broken_gzip(tmp_path: Path) -> None:
    whole = gzip.compress((HEADER + "".join(f"{i}\t{os.urandom(40).hex()}\tT\n" for i in range(2000))).encode())
    path = tmp_path / "c.tsv.gz"
    refusal(written(path, whole[: len(whole) // 2]), "line ", "cut off")
    refusal(written(path, whole[:-4]), "cut off")
    refusal(written(path, HEADER + "1\tone\tT\n"), "not a sound gzip file")
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 40] = b"\xff" * 40
    refusal(written(path, bytes(damaged)), "not a sound gzip file")


def test_refuses_what_is_not_a_corpus(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere.tsv", "no such file or folder")
    refusal(written(tmp_path / "c.parquet", "PAR1"), ".tsv", ".jsonl", "folder of .txt")
    folder = tmp_path / "folder"
    folder.mkdir()
    refusal(folder, "no .txt files")
    written(folder / "blank.txt", " \n")
    refusal(folder, "no passages")
    written(folder / "latin.txt", "fine\ncaf\xe9".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"latin\.txt, line 2: byte 4 \(0xe9\) is not UTF-8"):
        Corpus.load(folder)


def test_reports_a_file_that_cannot_be_read(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)
    refusal(table, "cannot be read", "Permission denied")


# -- real data --------------------------------------------------------------------------------------------------------


def test_reads_the_real_passages_as_the_csv_module_does() -> None:
    path = Path(os.environ.get("DRAGIN_LAB_DATA", "data")) / "passages" / "psgs_w100.tsv.gz"
    if not path.exists():
        pytest.skip("no real passages: set DRAGIN_LAB_DATA to the folder that holds passages/")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [tuple(row) for row in csv.reader(file, delimiter="\t")]
    assert plain(Corpus.load(path)) == rows[1:]
