"""Corpora: what is read, and what is refused with the place where it is wrong."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import pytest
from sources import write_table

from dragin_lab import almanac
from dragin_lab.errors import DataError, MissingPackageError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage

HEADER = "id\ttext\ttitle\n"
ROWS = [
    ("1", 'a "quoted" tab\tand\nline', "T"),
    ("x#2", "zażółć 電影 🎬", ""),
    ("3", "plain", 'says "hi"'),
]
EXPECTED = [Passage(id, title, text, score=0.0) for id, text, title in ROWS]


def plain(corpus: Corpus) -> list[tuple[str, str, str]]:
    return [(p.id, p.text, p.title) for p in corpus]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "psgs.tsv", EXPECTED)


def refusal(path: Path, *parts: str) -> str:
    """The message of the refusal; one or two lines that name the file and all of ``parts``."""
    with pytest.raises(DataError) as caught:
        Corpus.load(path)
    message = str(caught.value)
    assert message.count("\n") <= 1
    for part in (path.name, *parts):
        assert part in message
    return message


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# -- what is read ----------------------------------------------------------------------------------


def test_table(table: Path) -> None:
    corpus = Corpus.load(table)
    assert plain(corpus) == ROWS
    assert (len(corpus), corpus[1].id, corpus[-1].id, corpus.get("x#2").text) == (
        3,
        "x#2",
        "3",
        "zażółć 電影 🎬",
    )
    assert (corpus.name, corpus.source) == ("psgs", str(table))
    assert "3 passages" in repr(corpus)
    assert [p.id for p in corpus[:2]] == ["1", "x#2"]


def test_table_gzipped_with_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    text = "\ufefftitle\tid\tyear\ttext\r\na title\t7\t1999\tsome text\r\n\r\n"
    path = written(tmp_path / "psgs.tsv.gz", gzip.compress(text.encode()))
    assert plain(Corpus.load(path)) == [("7", "some text", "a title")]


@pytest.mark.parametrize(
    ("row", "title", "text"),
    [
        ({"contents": '"Ada"\nAda wrote.\nA book.'}, "Ada", "Ada wrote.\nA book."),  # FlashRAG
        ({"contents": "\nAda wrote."}, "", "Ada wrote."),  # FlashRAG without a title
        ({"contents": "Ada\nAda wrote.", "title": "Ada"}, "Ada", "Ada wrote."),
        (
            {"contents": '"Ada"\nAda wrote.', "title": "Ada", "text": "Ada wrote."},
            "Ada",
            "Ada wrote.",
        ),
        ({"contents": "Ada wrote.\nA book."}, "", "Ada wrote.\nA book."),  # pyserini
        ({"contents": "Ada wrote.\nA book.", "title": "Ada"}, "Ada", "Ada wrote.\nA book."),
        ({"contents": '"Ada"'}, "", '"Ada"'),
    ],
)
def test_contents_lose_no_line(row: dict[str, str], title: str, text: str) -> None:
    assert plain(Corpus.load([{"id": "0"} | row])) == [("0", text, title)]


def test_a_field_that_stands_in_no_passage_is_named_once() -> None:
    rows = [
        {"text": "one", "year": 1999, "url": None},
        {"text": "two", "year": 2000, "url": "http"},
    ]
    with pytest.warns(UserWarning, match="stand in no passage") as said:
        Corpus.load(rows)
    assert [str(one.message).partition(";")[0] for one in said] == [
        "list, row 1: year stand in no passage",
        "list, row 2: url stand in no passage",
    ]


def test_a_passage_has_a_bound() -> None:
    with pytest.raises(
        DataError,
        match=r"list, row 1: passage '1' has 1,000,001 characters, and .* at most 1,000,000",
    ):
        Corpus.load([{"text": "x" * 1_000_001}])


def test_a_folder_of_texts_is_cut_into_passages_that_overlap(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    written(tmp_path / "b" / "long.txt", "\ufeff" + "\n".join(f"w{i}" for i in range(250)))
    written(tmp_path / "a.TXT", "just a\nfew words ")
    written(tmp_path / "empty.txt", "")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    written(tmp_path / ".ipynb_checkpoints" / "a-checkpoint.txt", "an old copy")
    written(tmp_path / "b" / "._long.txt", b"\x00\x05\x16\x07\xb0")
    corpus = Corpus.load(tmp_path)
    assert [p.id for p in corpus] == ["a.TXT#1", "b/long.txt#1", "b/long.txt#2", "b/long.txt#3"]
    assert [p.title for p in corpus] == ["a", "long", "long", "long"]
    assert corpus[0].text == "just a few words"
    ends = [(p.text.split()[0], p.text.split()[-1]) for p in corpus[1:]]
    assert ends == [("w0", "w99"), ("w80", "w179"), ("w160", "w249")]
    assert Corpus.build(tmp_path, tmp_path / "built").fingerprint == corpus.fingerprint


def test_a_beir_folder(tmp_path: Path) -> None:
    written(
        tmp_path / "corpus.jsonl", '{"_id": "4983", "title": "T", "text": "one", "metadata": {}}\n'
    )
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
    files = [
        tmp_path / name for name in ("c.csv", "c.tsv.gz", "c.parquet", "c.jsonl", "saved", "splits")
    ]
    wanted = [("7", "one", "T"), ("8", "two", "")]
    for source in (
        *files,
        frame,
        data,
        data.to_iterable_dataset(),
        RECORDS,
        (dict(r) for r in RECORDS),
    ):
        assert plain(Corpus.load(source, fields=NAMES)) == wanted, source
    assert plain(Corpus.load(frame, fields={"title": "head", "text": "body"})) == [
        ("1", "one", "T"),
        ("2", "two", ""),
    ]
    with pytest.raises(
        DataError, match=r"DataFrame, row 1: has no text; its fields are key, head, body"
    ):
        Corpus.load(frame)
    with pytest.raises(DataError, match=r"row 1: has no field 'tail' \(text\)"):
        Corpus.load(frame, fields="text=tail")
    with pytest.raises(
        DataError, match="'txt' cannot be set so; write id=COLUMN,title=COLUMN,text=COLUMN"
    ):
        Corpus.load(frame, fields="txt=body")
    missing = pandas.DataFrame({"title": [None, "T"], "text": ["one", None]})
    with pytest.raises(DataError, match="DataFrame, row 2: has no text"):
        Corpus.load(missing)
    datasets.DatasetDict(train=data, test=data).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(DataError, match="holds the splits train, test; say which"):
        Corpus.load(tmp_path / "two", fields=NAMES)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "saved").mkdir()
    written(tmp_path / "saved" / "state.json", "{}")
    for source in (tmp_path / "saved", "hub:some/data", written(tmp_path / "c.parquet", "PAR1")):
        with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[corpora\]'"):
            Corpus.load(source)


def test_embedded_corpus_is_the_default() -> None:
    corpus = Corpus.load("almanac")
    assert corpus.fingerprint == Corpus.load().fingerprint
    assert (corpus.name, corpus[0], len(corpus)) == (
        "almanac",
        almanac.passages()[0],
        len(almanac.passages()),
    )


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
    with pytest.raises(
        DataError, match=r"number 2: the id '1' was used before, at passages, number 1;"
    ):
        Corpus.from_passages([Passage("1", "", "a"), Passage("1", "", "b")])
    with pytest.raises(KeyError):
        corpus.get("nowhere")


def test_a_field_may_be_longer_than_csv_readers_usually_take(tmp_path: Path) -> None:
    text = '"very" ' * 99_999 + "long"
    path = write_table(tmp_path / "c.tsv", [Passage("1", "", "short"), Passage("2", "", text)])
    assert Corpus.load(path).get("2").text == text


def test_a_quotation_mark_that_swallows_a_row_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv", HEADER + '1\t"begins\tA\n2\tends"\tB\n3\tthree\tC\n')
    with pytest.warns(UserWarning, match="row 1: a field goes over several lines and holds tabs"):
        Corpus.load(path)


# -- what is refused -------------------------------------------------------------------------------


def test_refuses_broken_tables(tmp_path: Path) -> None:
    def broken(text: str | bytes, *parts: str) -> None:
        refusal(written(tmp_path / "bad.tsv", text), *parts)

    good = "1\tone\tT\n"
    broken("", "no passages")
    broken(HEADER, "no passages")
    broken(
        "1\tone\tT\n2\ttwo\tT\n",
        "row 1",
        "has no text",
        "its fields are 1, 2, 3",
        "fields='text=contents'",
    )
    broken(HEADER + good + "2\ttwo\n", "row 2: has fewer fields than the first line")
    broken(HEADER + good + "2\ttwo\tT\tmore\n", "row 2: has more fields than the first line")
    broken(HEADER + "1\ttwo\tT\tmore\n", "row 1: has more fields than the first line")
    broken(HEADER + good + "2\tx\tT\n1\tone\tT\n", "row 3", "'1'", "row 1")
    broken(HEADER + good + '2\t" "\tT\n', "row 2", "text of passage '2' is empty")
    broken(HEADER + "\ttext\tT\n", "row 1", "id is empty")
    broken(
        HEADER + '1\t"two\nlines"\tT\n2\t"open\n3\tthree\tT\n',
        "after row 1",
        "quoted where they hold quotation",
    )
    broken(HEADER + '1\t"Weird" song\tT\n', "after row 0", "quoted where they hold quotation marks")
    broken(
        HEADER + "".join(f"{i}\tone\tT\n" for i in range(1500)) + '1500\t"Weird" song\tT\n',
        "after row 1500",
    )
    broken(
        (
            HEADER
            + "".join(f"{i}\tfour words of text\tT\n" for i in range(60_000))
            + "x\tcafé\tT\n"
        ).encode("latin-1"),
        "can't decode byte 0xe9",
        "encoding=cp1252",
    )
    broken(gzip.compress((HEADER + good).encode()), "can't decode")


def test_refuses_broken_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(
        (HEADER + "".join(f"{i}\t{os.urandom(40).hex()}\tT\n" for i in range(2000))).encode()
    )
    for data in (whole[: len(whole) // 2], whole[:-4], (HEADER + "1\tone\tT\n").encode()):
        refusal(
            written(tmp_path / "c.tsv.gz", data),
            "after row ",
            "cannot be read",
            "give a whole file",
        )


def test_refuses_what_is_not_a_corpus(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere.tsv", "no such file or folder")
    refusal(written(tmp_path / "c.doc", "x"), ".tsv", ".jsonl", "folder of .txt")
    refusal(written(tmp_path / "c.parquet", "PAR1"), "after row 0: cannot be read")
    folder = tmp_path / "folder"
    folder.mkdir()
    refusal(folder, "holds no passages; give", "folder of .txt and .md files")
    written(folder / "blank.txt", " \n")
    refusal(folder, "no passages")
    written(folder / "latin.txt", "fine\ncaf\xe9".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt: cannot be read .*; save it as UTF-8"):
        Corpus.load(folder)
    for thing in (7, b"text", {"id": "1", "text": "one"}, lambda: None):
        with pytest.raises(DataError, match=r"holds no passages; give a \.jsonl"):
            Corpus.load(thing)
    with pytest.raises(DataError, match=r"list, row 2: is str 'two'; every row is a dictionary"):
        Corpus.load([{"text": "one"}, "two"])
