"""Corpora: what is read, and what is refused with the place where it is wrong."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab import almanac
from dragin_lab.errors import CorpusError, MissingPackageError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage

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
    text = "\ufefftitle\tid\tyear\ttext\r\na title\t7\t1999\tsome text\r\n\r\n"
    path = written(tmp_path / "psgs.tsv.gz", gzip.compress(text.encode()))
    assert plain(Corpus.load(path)) == [("7", "some text", "a title")]


def test_json_lines(tmp_path: Path) -> None:
    records = [{"_id": "a", "title": None, "text": "one", "metadata": {}}, {"id": 2, "text": "two", "title": "T"}]
    text = "\n\n".join(json.dumps(r) for r in records)
    plain_file = written(tmp_path / "c.jsonl", text)
    packed = written(tmp_path / "c.jsonl.gz", gzip.compress(text.encode()))
    assert plain(Corpus.load(plain_file)) == [("a", "one", ""), ("2", "two", "T")]
    assert plain(Corpus.load(packed)) == plain(Corpus.load(str(plain_file)))


def test_the_contents_of_flashrag_are_a_title_and_a_text(tmp_path: Path) -> None:
    records = [{"id": "0", "contents": '"Ada"\nAda wrote.\nA book.'}, {"id": "1", "contents": "no title"}]
    path = written(tmp_path / "wiki.jsonl", "\n".join(json.dumps(r) for r in records))
    assert plain(Corpus.load(path)) == [("0", "Ada wrote.\nA book.", "Ada"), ("1", "no title", "")]


def test_a_folder_of_texts_is_cut_into_passages_that_overlap(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    written(tmp_path / "b" / "long.txt", "\ufeff" + "\n".join(f"w{i}" for i in range(250)))
    written(tmp_path / "a.TXT", "just a\nfew words ")
    written(tmp_path / "empty.txt", "")
    corpus = Corpus.load(tmp_path)
    assert [p.id for p in corpus] == ["a.TXT#1", "b/long.txt#1", "b/long.txt#2", "b/long.txt#3"]
    assert [p.title for p in corpus] == ["a", "long", "long", "long"]
    assert corpus[0].text == "just a few words"
    assert [(p.text.split()[0], p.text.split()[-1]) for p in corpus[1:]] == [
        ("w0", "w99"),
        ("w80", "w179"),
        ("w160", "w249"),
    ]
    built = Corpus.build(tmp_path, tmp_path / "built")
    assert built.fingerprint == corpus.fingerprint
    assert built.passages.about["cut"] == {"words": 100, "overlap": 20}  # type: ignore[union-attr]


def test_markdown_loses_its_front_matter_and_marks(tmp_path: Path) -> None:
    written(
        tmp_path / "page.md",
        "---\ntitle: The *real* title\ntags: [a]\n---\n# A heading\n\nSome **bold** `code` and [a link](http://x.y).\n\n"
        "- one\n- two\n\n| a | b |\n|---|---|\n| c | d |\n\n```\nkept as it is\n```\n",
    )
    written(tmp_path / "plain.md", "# Of *this*\n\ntext --- only\n")
    page, plain_page = Corpus.load(tmp_path)
    assert (page.id, page.title) == ("page.md#1", "The *real* title")
    assert page.text == "A heading Some bold code and a link. one two a b c d kept as it is"
    assert (plain_page.title, plain_page.text) == ("Of this", "Of this text --- only")


def test_articles_of_wikiextractor(tmp_path: Path) -> None:
    (tmp_path / "AA").mkdir()
    long = " ".join(f"w{i}" for i in range(150))
    articles = [{"id": "12", "title": "T", "text": f"T\n\n{long}"}, {"id": "13", "title": "Redirect", "text": ""}]
    written(tmp_path / "AA" / "wiki_00", "\n".join(json.dumps({"url": "u", **one}) for one in articles))
    corpus = Corpus.load(tmp_path)
    assert [(p.id, p.title, len(p.text.split())) for p in corpus] == [("12#1", "T", 100), ("12#2", "T", 50)]


def test_a_beir_folder(tmp_path: Path) -> None:
    written(tmp_path / "corpus.jsonl", '{"_id": "4983", "title": "T", "text": "one", "metadata": {}}\n')
    written(tmp_path / "queries.jsonl", '{"_id": "1", "text": "a question"}\n')
    assert plain(Corpus.load(tmp_path)) == [("4983", "one", "T")]


RECORDS = [{"key": 7, "head": "T", "body": "one"}, {"key": 8, "head": "", "body": "two"}]
NAMES = "id=key,title=head,text=body"


def test_every_usual_source_is_the_same_corpus(tmp_path: Path) -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    frame, data = pandas.DataFrame(RECORDS), datasets.Dataset.from_list(RECORDS)
    frame.to_csv(tmp_path / "c.csv", index=False)
    frame.to_csv(tmp_path / "c.tsv.gz", index=False, sep="\t")
    frame.to_parquet(tmp_path / "c.parquet")
    frame.to_json(tmp_path / "c.jsonl", orient="records", lines=True)
    data.save_to_disk(str(tmp_path / "saved"))
    splits = datasets.DatasetDict(train=data)
    splits.save_to_disk(str(tmp_path / "splits"))
    files = [tmp_path / name for name in ("c.csv", "c.tsv.gz", "c.parquet", "c.jsonl", "saved", "splits")]
    wanted = [("7", "one", "T"), ("8", "two", "")]
    for source in (*files, frame, data, data.to_iterable_dataset(), RECORDS, (dict(r) for r in RECORDS)):
        assert plain(Corpus.load(source, fields=NAMES)) == wanted, source
    assert plain(Corpus.load(frame, fields={"title": "head", "text": "body"})) == [("1", "one", "T"), ("2", "two", "")]
    with pytest.raises(CorpusError, match=r"DataFrame, row 1: has no text; its fields are key, head, body"):
        Corpus.load(frame)
    with pytest.raises(CorpusError, match=r"row 1: has no field 'tail' \(text\)"):
        Corpus.load(frame, fields="text=tail")
    with pytest.raises(CorpusError, match="'txt' cannot be set so; write id=COLUMN,title=COLUMN,text=COLUMN"):
        Corpus.load(frame, fields="txt=body")
    missing = pandas.DataFrame({"title": [None, "T"], "text": ["one", None]})
    with pytest.raises(CorpusError, match="DataFrame, row 2: has no text"):
        Corpus.load(missing)
    datasets.DatasetDict(train=data, test=data).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(CorpusError, match="holds the splits train, test; say which"):
        Corpus.load(tmp_path / "two", fields=NAMES)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "saved").mkdir()
    written(tmp_path / "saved" / "state.json", "{}")
    for source in (tmp_path / "saved", "hub:some/data", written(tmp_path / "c.parquet", "PAR1")):
        with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[corpora\]'"):
            Corpus.load(source)


def test_embedded_corpus_is_the_default() -> None:
    corpus = Corpus.load("almanac")
    assert corpus.fingerprint == Corpus.load().fingerprint
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
    with pytest.raises(CorpusError, match=r"number 2: the id '1' was used before, at passages, number 1;"):
        Corpus.from_passages([Passage("1", "", "a"), Passage("1", "", "b")])
    with pytest.raises(KeyError):
        corpus.get("nowhere")


def test_a_passage_of_100_000_words_is_read_and_announced_once(tmp_path: Path) -> None:
    text = '"very" ' * 99_999 + "long"
    path = write_table(tmp_path / "c.tsv", [("1", "w " * 9_999 + "w" * 30_000, ""), ("2", text, "")])
    with pytest.warns(UserWarning, match=r"will not fit into a prompt; cut them: 1, the first .*line 3 ") as caught:
        corpus = Corpus.load(path)
    assert len(caught) == len(corpus.warnings) == 1
    assert corpus.get("2").text == text


letter = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")
field = st.text(letter, max_size=20).filter(lambda s: not {"\t", "\n"} <= set(s))  # whose lines may be rows
filled = field.filter(lambda s: bool(s.strip()))


@given(rows=st.lists(st.tuples(filled, filled, field), min_size=1, max_size=6, unique_by=lambda r: r[0]))
def test_tables_read_what_a_csv_writer_wrote(rows: list[tuple[str, str, str]], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        assert plain(Corpus.load(write_table(folder / "c.tsv", rows, quoting))) == rows


def test_a_quotation_mark_of_a_text_does_not_hide_rows_in_silence(tmp_path: Path) -> None:
    rows = [("id", "text", "title"), ("1", '"Alpha begins', "A"), ("2", 'and Beta ends"', "B"), ("3", "Gamma", "C")]
    for mark, name in (("\t", "c.tsv"), (",", "c.csv")):
        path = written(tmp_path / name, "\n".join(map(mark.join, rows)))
        if mark == "\t":
            refusal(path, "line 2: its quotation mark hides the rows after it", "double the quotes")
            continue
        with pytest.warns(UserWarning, match=r"c\.csv, line 2: a row over several lines, 1 in all; where a text"):
            assert [p.id for p in Corpus.load(path)] == ["1", "3"]  # as CSV has it


def test_a_field_over_two_lines_is_warned_of_between_tabs_and_usual_between_commas(tmp_path: Path) -> None:
    rows = [("id", "text", "title"), ("1", "one\ntwo", ""), ("2", "three", ""), ("3", "four\n\nfive", "")]
    for mark, name in (("\t", "c.tsv"), (",", "c.csv")):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file, delimiter=mark, lineterminator="\n").writerows(rows)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert plain(Corpus.load(tmp_path / name)) == rows[1:]
        lines = [str(one.message) for one in caught]
        assert [line.partition("; ")[0] for line in lines] == [
            f"{tmp_path / name}, line 2: a row over several lines, 2 in all"
        ] * (mark == "\t")


# -- what is refused --------------------------------------------------------------------------------------------------


def test_refuses_broken_tables(tmp_path: Path) -> None:
    def broken(text: str | bytes, *parts: str) -> None:
        refusal(written(tmp_path / "bad.tsv", text), *parts)

    good = "1\tone\tT\n"
    broken("", "empty")
    broken("\n\n", "no passages")
    broken(HEADER, "no passages")
    broken("1\tone\tT\n2\ttwo\tT\n", "line 2", "has no text", "its fields are 1, one, T", "--fields text=contents")
    broken(HEADER + good + "2\ttwo\n", "line 3", "2 fields", "not 3")
    broken(HEADER + good + "2\ttwo\tT\tmore\n", "line 3", "4 fields")
    broken(HEADER + good + "2\tx\tT\n1\tone\tT\n", "line 4", "'1'", "line 2")
    broken(HEADER + good + '2\t" "\tT\n', "line 3", "text of passage '2' is empty")
    broken(HEADER + "\ttext\tT\n", "line 2", "id is empty")
    broken(HEADER + '1\t"two\nlines"\tT\n2\t"open\n3\tthree\tT\n' + "4\tx\ty\n" * 5, "line 4", "not closed")
    broken(HEADER + '1\t"Weird" song\tT\n', "line 2", "quote the whole field")
    broken(HEADER + "1\ta\0b\tT\n", "line 2", "NUL")
    broken((HEADER + good).encode("utf-16"), "line 1", "byte 1", "not UTF-8")
    broken((HEADER + good + "2\tcafé\tT\n").encode("latin-1"), "line 3", "byte 6", "not UTF-8")
    broken(gzip.compress((HEADER + good).encode()), "line 1", "name it .gz")


def test_refuses_broken_json_lines(tmp_path: Path) -> None:
    def broken(text: str, *parts: str) -> None:
        refusal(written(tmp_path / "bad.jsonl", text), *parts)

    good = '{"id": "1", "text": "one"}\n'
    broken("\n", "no passages")
    broken(good + '{"id": "2", "text": "t', "line 2", "not JSON")
    broken(good + "[" * 100_000, "line 2", "not JSON")
    broken(good + '["2", "two"]', "line 2", "list")
    broken(good + '{"id": "2", "body": "two"}', "line 2", "no text", "id, body", "--fields")
    broken(good + '{"id": 2.5, "text": "two"}', "line 2", "the id is float '2.5'")
    broken(good + '{"id": true, "text": "two"}', "line 2", "the id is bool 'True'")
    broken(good + '{"id": "2", "text": null}', "line 2", "has no text")
    broken(good + '{"id": "2", "text": ["a"]}', "line 2", "the text is list")
    broken(good + '{"id": "2", "text": "a", "title": {}}', "line 2", "the title is dict")
    broken(good + '{"id": "2", "text": " \\n"}', "line 2", "empty")
    broken(good + '{"id": 1, "text": "again"}', "line 2", "'1'", "line 1")
    broken(good + '{"text": "again"}\n{"id": 2, "text": "and"}', "line 3", "'2'", "line 2")
    broken(good + '{"id": "2", "text": "a\\u0000"}', "line 2", "NUL")
    broken(good + '{"id": "2", "text": "a\\ud800"}', "line 2", "surrogate")


def test_refuses_broken_gzip(tmp_path: Path) -> None:
    whole = gzip.compress((HEADER + "".join(f"{i}\t{os.urandom(40).hex()}\tT\n" for i in range(2000))).encode())
    path = tmp_path / "c.tsv.gz"
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 40] = b"\xff" * 40
    for data in (whole[: len(whole) // 2], whole[:-4], (HEADER + "1\tone\tT\n").encode()):
        refusal(written(path, data), "line ", "not a sound .gz file", "fetch it again")
    refusal(written(path, bytes(damaged)), "line ")  # what it unpacks to is wrong before its checksum is


def test_refuses_what_is_not_a_corpus(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere.tsv", "no such file or folder")
    refusal(written(tmp_path / "c.doc", "x"), ".tsv", ".jsonl", "folder of .txt")
    refusal(written(tmp_path / "c.parquet", "PAR1"), "not a sound parquet file")
    folder = tmp_path / "folder"
    folder.mkdir()
    refusal(folder, "holds no passages; give", "folder of .txt and .md files")
    written(folder / "blank.txt", " \n")
    refusal(folder, "no passages")
    written(folder / "latin.txt", "fine\ncaf\xe9".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"latin\.txt, line 2: byte 4 is not UTF-8"):
        Corpus.load(folder)
    for thing in (7, b"text", {"id": "1", "text": "one"}, lambda: None):
        with pytest.raises(CorpusError, match=r"holds no passages; give a \.jsonl"):
            Corpus.load(thing)
    with pytest.raises(CorpusError, match=r"list, row 2: is str 'two'; every row is a dictionary"):
        Corpus.load([{"text": "one"}, "two"])


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
