"""Milvus, for real in the file of Milvus Lite: what is found, what is refused, and what goes on after a failure."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from command import Command, environment
from encoding import WordEncoder
from milvus_servers import MilvusProcess
from sources import some_passages, write_json_lines

from dragin_lab.cli.app import DONE, FAILED
from dragin_lab.errors import BrokenOffError, CorpusError, MissingPackageError, SearchServerError, SettingError
from dragin_lab.retrieval import analysis, answers, dense, milvus
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.build import build_corpus
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.milvus import Address, Collection, Milvus, fill
from dragin_lab.trace.trace import Passage

grpc = pytest.importorskip("grpc", reason="grpc is not installed (extra: cluster)")
pymilvus = pytest.importorskip("pymilvus", reason="pymilvus is not installed (extra: cluster)")
pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed (extra: cluster)")


class Lost(pymilvus.MilvusException):
    """What ``pymilvus`` raises where a server is gone."""


#: Passages that no search can tell apart stand among others.
ALIKE = [Passage(f"alike{i}", "Twins", "the very same quarry") for i in range(40)]
QUERIES = ("harbour", "word17x0 river river", "Zażółć 1887 mill", "電", "the of", "", "unheard", "twins quarry")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built corpus of 240 passages."""
    folder = tmp_path_factory.mktemp("corpus")
    source = write_json_lines(folder / "p.jsonl", [*some_passages(200), *ALIKE])
    return build_corpus(source, folder / "built").folder


@pytest.fixture(scope="module")
def corpus(built: Path) -> Corpus:
    return Corpus.load(built)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of these tests; each has collections of its own."""
    return tmp_path_factory.mktemp("milvus") / "wiki.db"


@pytest.fixture(scope="module", autouse=True)
def running(file: Path) -> Iterator[None]:
    """Let nobody end Milvus Lite before the module is through; then nothing of it is left."""
    from milvus_lite.server_manager import server_manager_instance as manager

    before = {process.pid for process in psutil.Process().children(recursive=True)}
    release = manager.release_server
    manager.release_server = lambda path: None
    yield
    manager.release_server = release
    manager.release_all()
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    listening = [c for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    assert [c.laddr for c in listening if not c.laddr.ip.endswith("127.0.0.1")] == []


@pytest.fixture(scope="module")
def filled(file: Path, corpus: Corpus) -> str:
    address = f"milvus:{file}"
    assert fill(address, corpus, progress=False) == 0
    return address


def at(file: Path, name: str) -> str:
    return f"milvus:{file}#{name}"


def refused(address: str, *parts: str, **options: Any) -> None:
    """Opening is refused in one line that holds all of ``parts``."""
    with pytest.raises(SearchServerError) as caught:
        Milvus(address, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


# -- what is found ----------------------------------------------------------------------------------------------------


def test_finds_what_bm25_finds_but_for_the_order_of_equal_scores(
    filled: str, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus, "_TOGETHER", 3)
    ours, theirs = Milvus(filled, corpus), BM25(corpus)
    for k in (1, 30):
        for query, hits in zip(QUERIES, ours.search_many(QUERIES, k), strict=True):
            scores = {(p.id, p.title, p.text): p.score for p in theirs.search(query, len(corpus))}
            expected = list(scores.values())[:k]
            assert [p.score for p in hits] == pytest.approx(expected, rel=1e-6)
            assert [scores[p.id, p.title, p.text] for p in hits] == pytest.approx(expected, rel=1e-6)
    assert ours.search(QUERIES[1], 3) == ours.search_many(QUERIES, 3)[1]
    assert ours.search_many([], 3) == []


def test_equal_scores_are_in_corpus_order(filled: str) -> None:
    assert [p.id for p in Milvus(filled).search("twins very same", 40)] == [f"alike{i}" for i in range(40)]


def test_provenance_says_what_was_searched(filled: str, corpus: Corpus) -> None:
    retriever = open_retriever(filled, corpus.source)
    facts = retriever.provenance()
    assert (facts["kind"], facts["passages"], facts["corpus_fingerprint"]) == (
        "milvus-bm25",
        240,
        corpus.fingerprint,
    )
    assert (facts["analysis"], facts["k1"], facts["b"], facts["tie_breaker"]) == (analysis.NAME, 1.2, 0.75, 0.5)
    assert facts["server"].startswith("milvus_lite")
    assert json.loads(json.dumps(facts)) == facts
    assert repr(retriever) == f"Milvus('{filled}', bm25, 240 passages)"


HIT = {"row": 0, "distance": 1.0, "entity": {"id": "1", "title": "T", "text": "x"}}


@pytest.mark.parametrize(
    ("count", "says"), [(7, "answers with 7 hits and was asked for 6"), (2, "with the id '1' twice")]
)
def test_an_answer_that_cannot_be_right_is_refused(
    filled: str, count: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = Milvus(filled)
    monkeypatch.setattr(pymilvus.MilvusClient, "search", lambda *args, data, **options: [[HIT] * count for _ in data])
    with pytest.raises(SearchServerError, match=says) as caught:
        retriever.search("harbour", 1)
    assert str(caught.value).startswith(filled)


@pytest.mark.parametrize("k", [0, 16_385])
def test_k_has_limits(filled: str, k: int) -> None:
    with pytest.raises(SettingError, match="from 1 to 16,384"):
        Milvus(filled).search("cat", k)


def test_dense_vectors_are_searched_by_their_inner_product(
    file: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, encoder = at(file, "dense"), WordEncoder()
    assert fill(address, corpus, encoder=encoder, progress=False) == 0
    retriever = Milvus(address, corpus, encoder=encoder)
    vectors = encoder.encode_passages(list(corpus))  # (240, 16)
    rows = {passage.id: row for row, passage in enumerate(corpus)}
    for query in ("harbour", "word17x0 river", "senate bridge quarry"):
        scores = vectors @ encoder.encode_queries([query])[0]
        results = retriever.search(query, 5)
        assert [p.score for p in results] == pytest.approx(np.sort(scores)[::-1][:5].tolist(), rel=1e-5)
        assert [scores[rows[p.id]] for p in results] == pytest.approx([p.score for p in results], rel=1e-5)
    assert len(retriever.search("harbour", 500)) == 240
    assert (retriever.provenance()["kind"], retriever.provenance()["model"]) == ("milvus-dense", "words")
    both = retriever.search_many(["harbour", "void"], 2)
    assert [[p.id for p in results] for results in both] == [[p.id for p in retriever.search("harbour", 2)], []]
    opened: list[str] = []
    monkeypatch.setattr(dense, "open_encoder", lambda name: opened.append(name) or encoder)
    assert Milvus(address).search("harbour", 2) == retriever.search("harbour", 2)
    assert opened == ["words"]
    refused(address, "was filled with encoder", encoder=WordEncoder("other"))


def test_an_approximate_index_finds_a_passage_by_its_own_text(
    file: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus, "EXACT", 100)
    address, encoder = at(file, "approximate"), WordEncoder()
    fill(address, corpus, encoder=encoder, progress=False)
    results = Milvus(address, corpus, encoder=encoder).search(f"{corpus[16].title} {corpus[16].text}", 3)
    assert (results[0].id, len(results)) == ("17", 3)


# -- the commands ----------------------------------------------------------------------------------------------------


def test_the_commands_fill_check_and_search(file: Path, built: Path, corpus: Corpus, command: Command) -> None:
    spec = at(file, "commands")
    ran = command("corpus", "index", built, "--retriever", spec)
    assert (ran.code, ran.out) == (DONE, f"Milvus('{spec}', bm25, 240 passages)\n")
    assert f"--retriever {spec}" in ran.err
    ran = command("corpus", "search", "word17x0", "--corpus", built, "--retriever", spec, "--top-k", 1, "--json")
    assert json.loads(ran.out)["id"] == "17"
    ran = command("corpus", "check", built, "--retriever", spec, "--full")
    assert ran.code == DONE
    assert "canary queries, and each finds its passage" in ran.out
    with closing(Collection(Address.parse(spec))) as collection:
        every = ["row", "id", "title", "text", "vector"]
        collection.ask("upsert", [dict(collection.ask("query", ids=[0], output_fields=every)[0]) | {"text": "changed"}])
    ran = command("corpus", "check", built, "--retriever", spec)
    assert (ran.code, "does not find passage '1' among the first 10" in ran.out) == (FAILED, True)
    other = build_corpus(write_json_lines(file.parent / "o.jsonl", some_passages(9)), file.parent / "other").folder
    assert (
        f"FAIL  {spec}: was filled with corpus_fingerprint"
        in command("corpus", "check", other, "--retriever", spec).out
    )
    command.refused("corpus", "search", "x", "--corpus", other, "--retriever", spec, says=("corpus_fingerprint",))
    command.refused("corpus", "index", built, "--retriever", "milvus:nowhere", says=("is not an address of Milvus",))
    command.refused("corpus", "index", built, "--retriever", "tantivy", "--model", "m", says=("is for milvus:URI",))


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_collection_of_another_corpus_or_analysis_or_version_is_refused(
    filled: str, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Corpus.from_passages(some_passages(10), name="other")
    refused(filled, "corpus_fingerprint", "(built, 240 passages)", "--force", corpus=other)
    with pytest.raises(SearchServerError, match=r"was filled with corpus_fingerprint .*240 passages.*--force"):
        fill(filled, other, progress=False)
    monkeypatch.setattr(analysis, "NAME", "english-0")
    refused(filled, "was filled with analysis 'english-3' (built, 240 passages), and this is 'english-0'")
    monkeypatch.undo()
    monkeypatch.setattr(milvus, "FORMAT", 4)
    refused(filled, "was filled with format 3 (built, 240 passages), and this is 4")


def test_a_collection_of_something_else_is_neither_read_nor_replaced(file: Path, corpus: Corpus) -> None:
    with closing(pymilvus.MilvusClient(str(file))) as owner:
        owner.create_collection("theirs", dimension=4)
        owner.insert("theirs", [{"id": 1, "vector": [1.0, 0.0, 0.0, 0.0]}])
    refused(at(file, "theirs"), "is a collection of something else")
    for force in (False, True):
        with pytest.raises(SearchServerError, match="is a collection of something else"):
            fill(at(file, "theirs"), corpus, force=force, progress=False)
    with closing(pymilvus.MilvusClient(str(file))) as owner:
        assert owner.query("theirs", ids=[1])[0]["id"] == 1
    refused(at(file, "nowhere"), "holds no such collection", "dragin-lab corpus index CORPUS --retriever")


def test_files_that_are_none(tmp_path: Path, corpus: Corpus) -> None:
    refused(str(tmp_path / "no.db"), "no such database")
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "old.db").write_bytes(b"SQLite format 3")
    refused(str(tmp_path / "old.db"), "is not a database of this Milvus Lite")
    (tmp_path / "else.db").mkdir()
    (tmp_path / "else.db" / "notes.txt").write_text("mine")
    with pytest.raises(SearchServerError, match="is not a database of this Milvus Lite"):
        fill(str(tmp_path / "else.db"), corpus)


@pytest.mark.parametrize(
    "spec", ["milvus:wiki", "milvus:ftp://host/x.db", "milvus:http://", "milvus:http://h:9x", "milvus:./w.db#a-b"]
)
def test_addresses_that_are_none(spec: str) -> None:
    with pytest.raises(SettingError, match=r"give milvus:\./wiki\.db or milvus:http|give letters"):
        Address.parse(spec)


def test_who_asks_stands_in_the_address_or_the_environment_and_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address.parse("milvus:http://ann:s3cr%3At@127.0.0.1:1/mine#wiki")
    assert (address.token, str(address)) == ("ann:s3cr:t", "milvus:http://127.0.0.1:1/mine#wiki")
    assert "s3cr" not in repr(address)
    monkeypatch.setenv("MILVUS_TOKEN", "t0ken")
    assert Address.parse("https://host").token == "t0ken"
    assert str(Address.parse("https://host")) == "milvus:https://host:443"


def test_a_passage_that_is_too_long_is_named_before_anything_is_sent_or_dropped(file: Path, corpus: Corpus) -> None:
    long = Corpus.from_passages([*some_passages(3), Passage("x", "T", "ż" * 33_000)])
    with pytest.raises(CorpusError, match=r"the text of passage 4 \(id 'x'\) has 66,000 bytes.*takes 65,535"):
        fill(at(file, "long"), long, progress=False)
    refused(at(file, "long"), "holds no such collection")
    fill(at(file, "short"), corpus, progress=False)
    with pytest.raises(CorpusError, match="cut the corpus into shorter passages"):
        fill(at(file, "short"), long, force=True, progress=False)
    assert len(Milvus(at(file, "short"), corpus)) == 240


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "milvus_lite.server_manager", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[cluster\]'"):
        Collection(Address.parse(str(tmp_path / "wiki.db")), create=True)


# -- what goes wrong on the way ---------------------------------------------------------------------------------------


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus, "BATCH", 50)


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """The rows of every request that writes."""
    sent: list[list[int]] = []
    upsert = pymilvus.MilvusClient.upsert

    def counted(self: Any, name: str, rows: list[dict[str, Any]], **options: Any) -> Any:
        sent.append([row["row"] for row in rows])
        return upsert(self, name, rows, **options)

    monkeypatch.setattr(pymilvus.MilvusClient, "upsert", counted)
    return sent


@pytest.mark.usefixtures("small_batches")
def test_a_filling_that_was_broken_off_goes_on(
    file: Path, corpus: Corpus, puts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = at(file, "broken")
    upsert = pymilvus.MilvusClient.upsert

    def failing(self: Any, name: str, rows: list[dict[str, Any]], **options: Any) -> Any:
        if rows[0]["row"] == 100:
            upsert(self, name, rows[:20], **options)  # a part of it came through
            raise Lost(2, "server unavailable")
        return upsert(self, name, rows, **options)

    with monkeypatch.context() as patched:
        patched.setattr(pymilvus.MilvusClient, "upsert", failing)
        with pytest.raises(BrokenOffError, match=r"has room.*; then run it again, and it goes on"):
            fill(address, corpus, progress=False)
    refused(address, "holds 120 of 240 passages of built", "dragin-lab corpus index' to go on")
    del puts[:]
    assert fill(address, corpus, progress=False) == 120
    assert puts == [[*range(100, 150)], [*range(150, 200)], [*range(200, 240)]]
    renamed = Corpus.from_passages(corpus, name="renamed")
    assert fill(address, renamed, progress=False) == 240
    assert [p.id for p in Milvus(address, corpus).search("twins", 3)] == ["alike0", "alike1", "alike2"]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], Any]], None]:
    """Let something else happen just before a row is sent."""

    def patch(row: int, happen: Callable[[], Any]) -> None:
        ask, pending = Collection.ask, [happen]

        def asked(self: Collection, method: str, *arguments: Any, **options: Any) -> Any:
            answer = ask(self, method, *arguments, **options)
            if method == "upsert" and arguments[0][-1]["row"] == row - 1 and pending:
                pending.pop()()
            return answer

        monkeypatch.setattr(Collection, "ask", asked)

    return patch


@pytest.mark.usefixtures("small_batches")
def test_a_collection_that_is_replaced_on_the_way_is_left_alone(file: Path, corpus: Corpus, meanwhile: Any) -> None:
    address, other = at(file, "both"), Corpus.from_passages(some_passages(30, seed=1), name="other")
    meanwhile(100, lambda: fill(address, other, force=True, progress=False))
    with pytest.raises(CorpusError, match="another 'corpus index --force' replaced it"):
        fill(address, corpus, progress=False)
    assert len(Milvus(address, other)) == 30


def test_a_filling_killed_while_it_made_the_collection_begins_again(file: Path, corpus: Corpus) -> None:
    address = at(file, "begun")
    with closing(Collection(Address.parse(address), create=True)) as collection:
        collection.create({}, None)
        collection.ask("release_collection")
        collection.ask("drop_index", index_name=collection.ask("list_indexes")[0])
    refused(address, "holds no such collection")
    other = Corpus.from_passages(some_passages(5), name="other")
    assert fill(address, other, progress=False) == 0


KILLED = """
import os, signal, sys
import pymilvus
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval import milvus
milvus.BATCH = 50
upsert = pymilvus.MilvusClient.upsert
def killing(self, name, rows, **options):
    upsert(self, name, rows, **options)
    if rows[0]["row"] == 100:
        os.kill(os.getpid(), signal.SIGKILL)
pymilvus.MilvusClient.upsert = killing
milvus.fill(sys.argv[1], Corpus.load(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_filling_that_was_killed_goes_on_and_one_process_at_a_time_opens_a_file(
    built: Path, corpus: Corpus, tmp_path: Path
) -> None:
    file = tmp_path / "wiki.db"
    ran = subprocess.run([sys.executable, "-c", KILLED, file, built], env=environment(), capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    refused(f"milvus:{file}", "holds 150 of 240 passages")
    assert fill(file.as_posix(), corpus, progress=False) == 150
    assert [p.id for p in Milvus(f"milvus:{file}", corpus).search("word200x0", 1)] == ["200"]
    with closing(Milvus(str(file))) as one, closing(Milvus(str(file))) as another:
        one.close()
        assert another.search("word200x0", 1)[0].id == "200"
    second = "import sys; from dragin_lab.retrieval.milvus import Milvus; Milvus(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", second, file], env=environment(), capture_output=True)
    assert b"no other process has a Milvus Lite file open" in ran.stderr
    shown = ran.stderr.replace(b"milvus_lite.exceptions", b"").split(b"SearchServerError")[-1]
    assert b"DataDirLockedError" not in shown


def test_a_server_that_is_down_or_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus, "CONNECT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        refused(
            f"milvus:http://127.0.0.1:{port}",
            f"milvus:http://127.0.0.1:{port}: Milvus fails (Fail connecting",
            "check that",
        )
    refused(f"milvus:http://127.0.0.1:{port}", "Fail connecting to server")


def test_a_server_that_stops_answering_is_given_up() -> None:
    """It takes the connection, and says nothing more."""
    over, asked = threading.Event(), list[str]()

    class Silent(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            asked.append(call.method.rpartition("/")[2])
            wait = 0 if asked[-1] == "Connect" else 30
            return grpc.unary_unary_rpc_method_handler(lambda request, context: [over.wait(wait), b""][1])

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Silent()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        refused(f"http://127.0.0.1:{port}", "Deadline Exceeded", "1 s for an answer (DRAGIN_LAB", timeout=1)
        assert len(asked) == 2, "what has timed out is not asked again"
    finally:
        over.set()
        server.stop(0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[MilvusProcess]:
    """A server of its own, which is gone when the test is through."""
    process = MilvusProcess(tmp_path / "data")
    yield process
    process.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_a_server_that_is_full_or_dies_on_the_way_loses_nothing(
    process: MilvusProcess, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, meanwhile: Any
) -> None:
    process.start(longest_file=20_000)
    with pytest.raises(BrokenOffError, match=r"File too large.*it goes on where it stopped"):
        fill(process.uri, corpus, progress=False)
    process.kill()
    monkeypatch.setattr(milvus, "CONNECT", 2)
    with pytest.raises(SearchServerError, match="Fail connecting to server"):
        fill(process.uri, corpus, progress=False)
    monkeypatch.setattr(milvus, "CONNECT", 30)
    process.start()
    meanwhile(200, process.kill)
    with monkeypatch.context() as patched:
        patched.setattr(answers, "TIMEOUT", 4)
        with pytest.raises(BrokenOffError, match="it goes on where it stopped"):
            fill(process.uri, corpus, progress=False)
    monkeypatch.setattr(milvus, "CONNECT", 30)
    process.start()
    refused(process.uri, "holds 200 of 240 passages")
    assert fill(process.uri, corpus, progress=False) == 200
    with closing(Milvus(process.uri, corpus, timeout=2)) as retriever:
        assert [p.id for p in retriever.search("word200x0", 1)] == ["200"]
        process.kill()
        with pytest.raises(SearchServerError, match=rf"{process.uri}: Milvus fails .*2 s for an answer \(DRAGIN_LAB"):
            retriever.search("word200x0", 1)
