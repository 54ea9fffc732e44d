"""Elasticsearch: what is sent, what is made of the answers, what is asked again, and that no secret leaves it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Command
from search_server import Index, serve
from sources import some_passages, write_json_lines

from dragin_lab.cli.app import DONE, FAILED
from dragin_lab.data import web
from dragin_lab.errors import SearchServerError, SettingError
from dragin_lab.retrieval import elasticsearch as server
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.build import build_corpus
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.elasticsearch import Address, Elasticsearch
from dragin_lab.trace.trace import Passage

PASSAGES = [
    Passage("1", "Alpha", "the cat sat on the mat"),
    Passage("2", "", "a dog chased the cats"),
    Passage("3", "Cats", "dogs bark"),
]
BUSY: server.Any = (429, {}, {"error": "busy"})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSE", 0.0)
    for name in ("API_KEY", "USER", "PASSWORD"):
        monkeypatch.delenv(f"ELASTICSEARCH_{name}", raising=False)


@pytest.fixture
def index() -> Iterator[Index]:
    with serve(Index(Corpus.from_passages(PASSAGES))) as running:
        yield running


def query(text: str, size: int) -> dict[str, Any]:
    """What the authors' code sends for a query."""
    match = {"query": text, "type": "best_fields", "fields": ["title", "txt"], "tie_breaker": 0.5}
    return {"_source": True, "query": {"multi_match": match}, "size": size}


def test_what_is_sent_is_what_the_released_code_sends(index: Index) -> None:
    retriever = Elasticsearch(index.url)
    index.asked.clear()
    retriever.search('cats: a "dog"?', 3)
    retriever.search_many(["Cat", "mat"], 2)
    (first, path, headers, body), (second, many_path, many_headers, lines) = index.asked
    assert (first, path, body) == (
        "POST",
        "/wiki/_search?search_type=dfs_query_then_fetch",
        [query('cats: a "dog"?', 3)],
    )
    assert headers["Content-Type"] == "application/json"
    assert (second, many_path, many_headers["Content-Type"]) == ("POST", "/wiki/_msearch", "application/x-ndjson")
    header = {"search_type": "dfs_query_then_fetch"}
    assert lines == [header, query("Cat", 2), header, query("mat", 2)]
    assert "Authorization" not in headers


def test_hits_are_passages_with_their_scores(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TOGETHER", 2)
    retriever, expected = Elasticsearch(index.url, index.corpus), BM25(index.corpus)
    for text in ("cats dogs", "the of"):
        assert retriever.search(text, 3) == expected.search(text, 3)
    index.asked.clear()
    assert retriever.search_many(["cat", "mat", "dog"], 2) == expected.search_many(["cat", "mat", "dog"], 2)
    assert (len(index.asked), retriever.search_many([], 2), len(retriever)) == (2, [], 3)


def test_an_exchange_that_was_recorded(index: Index) -> None:
    """With osmem-server 0.1.6, which others wrote to answer as OpenSearch 3.8 does, over an index of ``PASSAGES``."""
    path = Path(__file__).with_name("opensearch_exchange.jsonl")
    exchange = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    index.troubles = [(one["status"], {}, one["answer"]) for one in exchange]
    retriever = Elasticsearch(index.url, index.corpus)
    assert [p.id for p in retriever.search("cats on a mat", 2)] == ["1", "3"]
    assert [[p.id for p in hits] for hits in retriever.search_many(["dog", "the of"], 2)] == [["3", "2"], []]
    assert retriever.provenance()["server"] == "opensearch 3.8.0"
    with pytest.raises(SearchServerError, match=r"404 \(index_not_found_exception: no such index \[other\]\)"):
        Elasticsearch(f"{index.address}/other")
    wanted = [(one["method"], one["path"], one["body"]) for one in exchange]
    assert [(method, path, body) for method, path, _, body in index.asked] == wanted


def test_provenance_says_what_was_searched(index: Index) -> None:
    index.about = {"version": {"number": "2.11.0", "distribution": "opensearch"}}
    facts = open_retriever(f"elasticsearch:{index.address}").provenance()
    assert (facts["kind"], facts["server"]) == ("elasticsearch-bm25", "opensearch 2.11.0")
    assert (facts["passages"], facts["index_uuid"], facts["tie_breaker"]) == (3, "u1", 0.5)
    assert json.loads(json.dumps(facts)) == facts


def test_the_check_puts_the_canaries_to_the_server(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = build_corpus(write_json_lines(tmp_path / "p.jsonl", some_passages(50)), tmp_path / "built").folder
    index.corpus = Corpus.load(built)
    ran = Command(capsys)("corpus", "check", built, "--retriever", f"elasticsearch:{index.url}")
    assert (ran.code, "canary queries, and each finds its passage" in ran.out) == (DONE, True)
    index.count = 49
    ran = Command(capsys)("corpus", "check", built, "--retriever", f"elasticsearch:{index.url}")
    assert (ran.code, "FAIL " in ran.out, "holds 49 passages, and built has 50" in ran.out) == (FAILED, True, True)


# -- who asks ---------------------------------------------------------------------------------------------------------


def sent(index: Index) -> str | None:
    return index.asked[-1][2].get("Authorization")


def test_who_asks_stands_in_the_address_or_the_environment(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICSEARCH_USER", "me")
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", "pass")
    Elasticsearch(index.url)
    assert sent(index) == "Basic bWU6cGFzcw=="
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", "a2V5")
    Elasticsearch(index.url)
    assert sent(index) == "ApiKey a2V5"
    Elasticsearch(index.url.replace("//", "//ann:s3cr%3At@"))
    assert sent(index) == "Basic YW5uOnMzY3I6dA=="


def test_no_secret_leaves_by_a_record_or_a_failure(index: Index) -> None:
    retriever = Elasticsearch(index.address.replace("//", "//ann:s3cret@"))
    index.troubles = [(400, {}, {})]
    with pytest.raises(SearchServerError) as failed:
        retriever.search("cat", 1)
    shown = [repr(retriever), str(retriever.provenance()), repr(retriever.address), str(failed.value)]
    assert [text for text in shown if "s3cret" in text or "ann" in text] == []


def test_a_redirect_is_not_followed_with_the_secret(index: Index) -> None:
    index.troubles = [(302, {"Location": "http://127.0.0.1:9/wiki"}, {})]
    with pytest.raises(SearchServerError, match="answers 302; give the address that it points to"):
        Elasticsearch(index.url.replace("//", "//ann:s3cret@"))
    assert len(index.asked) == 1


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [BUSY, (503, {"Retry-After": "0"}, {}), "cut"])
def test_what_is_lost_or_refused_for_the_moment_is_asked_again(index: Index, trouble: Any) -> None:
    retriever = Elasticsearch(index.url)
    index.troubles = [trouble, trouble]
    assert [p.id for p in retriever.search("mat", 1)] == ["1"]
    index.troubles = [trouble] * web.TRIES
    index.asked.clear()
    with pytest.raises(SearchServerError, match="gives no answer, 5 times"):
        retriever.search("mat", 1)
    assert len(index.asked) == web.TRIES


def test_pauses_grow_or_are_those_that_the_server_asks_for(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = Elasticsearch(index.url)
    pauses: list[float] = []
    monkeypatch.setattr(web, "PAUSE", 0.5)
    monkeypatch.setattr("time.sleep", pauses.append)
    index.troubles = [BUSY, BUSY, (429, {"Retry-After": "3"}, {}), (429, {"Retry-After": "9999"}, {})]
    retriever.search("mat", 1)
    assert pauses == [0.0, 1.0, 3.0, web.LONGEST_PAUSE]


def test_a_slow_server_counts_as_lost(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = Elasticsearch(index.url)
    monkeypatch.setattr(web, "TIMEOUT", 1.0)
    index.troubles = ["silence"]
    assert [p.id for p in retriever.search("mat", 1)] == ["1"]
    monkeypatch.setattr(web, "TRIES", 2)
    index.troubles = ["silence"] * 2
    with pytest.raises(SearchServerError, match="timed out"):
        retriever.search("mat", 1)


@pytest.mark.parametrize("trouble", ["silence", "dripping headers", "dripping body"])
def test_a_search_ends_whatever_the_server_does(index: Index, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = Elasticsearch(index.url, timeout=0.3)
    says = rf"{index.url}: gives no answer within 0.3 s \(.*timed out.*\); .* DRAGIN_LAB_SEARCH_TIMEOUT"
    for search in (lambda: retriever.search("mat", 1), lambda: retriever.search_many(["mat"], 1)):
        index.asked.clear()
        index.troubles = [trouble] * web.TRIES
        with pytest.raises(SearchServerError, match=says):
            search()
        assert len(index.asked) == 1, "no time is left to try again"
    index.troubles = []
    assert [p.id for p in retriever.search("mat", 1)] == ["1"]
    monkeypatch.setenv("DRAGIN_LAB_SEARCH_TIMEOUT", "0.2")
    index.troubles = [trouble] * web.TRIES
    with pytest.raises(SearchServerError, match=r"within 0\.2 s"):
        Elasticsearch(index.url)


@pytest.mark.parametrize("timeout", [0, "soon"])
def test_a_deadline_must_be_a_number_of_seconds(index: Index, timeout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"^timeout="):
        Elasticsearch(index.url, timeout=timeout)
    monkeypatch.setenv("DRAGIN_LAB_SEARCH_TIMEOUT", str(timeout))
    with pytest.raises(SettingError, match=r"^DRAGIN_LAB_SEARCH_TIMEOUT="):
        Elasticsearch(index.url)


def test_a_server_that_is_down_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SearchServerError, match=f"{address}/wiki: gives no answer, 5 times .*refused"):
        Elasticsearch(address)


def test_of_many_only_the_searches_that_were_refused_are_sent_again_alone(index: Index) -> None:
    retriever = Elasticsearch(index.url)
    index.asked.clear()
    refused = {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "queue is full"}}
    busy = {"took": 1, "responses": [index.search(query("mat", 1)) | {"status": 200}, refused]}
    index.troubles = [(200, {}, busy)]
    assert [[p.id for p in hits] for hits in retriever.search_many(["mat", "bark"], 1)] == [["1"], ["3"]]
    (_, _, _, together), (_, path, _, alone) = index.asked
    assert together[1::2] == [query("mat", 1), query("bark", 1)]
    assert (path, alone) == ("/wiki/_search?search_type=dfs_query_then_fetch", [query("bark", 1)])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            {"_shards": {"total": 2, "failed": 1}, "hits": {"hits": []}},
            "a part of the index only .1 of 2 shards failed",
        ),
        ({"timed_out": True, "_shards": {"failed": 0}, "hits": {"hits": []}}, "a part of the index only"),
        ({"error": {"type": "parsing_exception", "reason": "no"}}, "refuses the search .parsing_exception: no"),
    ],
)
def test_half_an_answer_is_none(index: Index, answer: dict[str, Any], says: str) -> None:
    retriever = Elasticsearch(index.url)
    index.answers = [answer, answer]
    with pytest.raises(SearchServerError, match=says):
        retriever.search("cat", 1)
    with pytest.raises(SearchServerError, match=says):
        retriever.search_many(["cat"], 1)


HIT = {"_id": "7", "_score": 1.0, "_source": {"title": "T", "txt": "x"}}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "without hits; check which server"),
        ({"hits": None}, "without hits"),
        ({"hits": {"hits": 3}}, r"Expected `array`, got `int` - at `\$\.hits\.hits`"),
        ({"hits": {"hits": [HIT | {"_id": " "}]}}, "_id"),
        ({"hits": {"hits": [HIT | {"_score": None}]}}, "_score"),
        ({"hits": {"hits": [HIT | {"_score": float("nan")}]}}, "malformed"),
        ({"hits": {"hits": [HIT | {"_source": {"title": "T", "txt": ""}}]}}, "txt"),
        ({"hits": {"hits": [HIT | {"_source": {"title": "\ud800", "txt": "x"}}]}}, "malformed|surrogate"),
        ({"hits": {"hits": [HIT, HIT | {"_id": "8"}]}}, "answers with 2 hits and was asked for 1"),
    ],
)
def test_an_answer_of_another_kind_is_refused_with_the_servers_address(
    index: Index, answer: dict[str, Any], says: str
) -> None:
    retriever = Elasticsearch(index.url)
    for search in (lambda: retriever.search("cat", 1), lambda: retriever.search_many(["cat"], 1)):
        index.answers = [answer]
        with pytest.raises(SearchServerError, match=says) as caught:
            search()
        assert str(caught.value).startswith(index.url)


def test_hits_with_one_id_or_in_another_order_are_refused(index: Index) -> None:
    retriever = Elasticsearch(index.url)
    index.answers = [{"hits": {"hits": [HIT, HIT]}}, {"hits": {"hits": [HIT, HIT | {"_id": "8", "_score": 2.0}]}}]
    with pytest.raises(SearchServerError, match="with the id '7' twice"):
        retriever.search("cat", 2)
    with pytest.raises(SearchServerError, match=r"the scores of its hits do not fall \(1, 2\)"):
        retriever.search("cat", 2)


@pytest.mark.parametrize("answer", [{"count": None}, {"wiki": {"mappings": 3}}, {"docs": [3]}])
@pytest.mark.parametrize("asked", range(4))
def test_an_index_that_answers_something_else_is_refused(index: Index, asked: int, answer: Any) -> None:
    """Each of the requests with which an index is opened: what it is, its server, its count, some of its passages."""
    Elasticsearch(index.url, index.corpus)
    sent = [(path, body) for _, path, _, body in index.asked]
    index.troubles = [(200, {}, index.answer(*request) or {}) for request in sent]
    index.troubles[asked] = (200, {}, answer)
    if sent[asked][0] == "/":
        assert "server" in Elasticsearch(index.url, index.corpus).provenance()  # its version may be unknown
        return
    with pytest.raises(SearchServerError, match=index.url):
        Elasticsearch(index.url, index.corpus)


def test_what_will_not_change_is_asked_once(index: Index) -> None:
    with pytest.raises(SearchServerError, match=r"no /other\); give the address of an index that is there"):
        Elasticsearch(f"{index.address}/other")
    assert len(index.asked) == 1
    index.troubles = [(401, {}, {})]
    with pytest.raises(
        SearchServerError, match="answers 401; give a user in the address, or set ELASTICSEARCH_API_KEY"
    ):
        Elasticsearch(index.url)
    index.troubles = [(200, {}, [])]  # type: ignore[list-item]
    with pytest.raises(SearchServerError, match="answers otherwise than Elasticsearch"):
        Elasticsearch(index.url)


def test_an_index_of_something_else_is_refused(index: Index) -> None:
    index.count = 0
    with pytest.raises(SearchServerError, match="the index is empty"):
        Elasticsearch(index.url)
    index.count = 2
    with pytest.raises(SearchServerError, match="holds 2 passages, and passages has 3"):
        Elasticsearch(index.url, index.corpus)
    index.count = None
    other = Corpus.from_passages([*PASSAGES[:2], Passage("3", "Cats", "dogs barked")])
    with pytest.raises(SearchServerError, match="passage '3' of passages is not there or has another text"):
        Elasticsearch(index.url, other)
    moved = Corpus.from_passages([*PASSAGES[:2], Passage("4", "Cats", "dogs bark")])
    with pytest.raises(SearchServerError, match="passage '4'"):
        Elasticsearch(index.url, moved)
    index.mappings = {"title": {"type": "text"}, "body": {"type": "text"}}
    with pytest.raises(SearchServerError, match="has no field txt, only title, body"):
        Elasticsearch(index.url)


def test_another_analysis_is_announced(index: Index) -> None:
    index.mappings["txt"] = {"type": "text"}
    with pytest.warns(UserWarning, match="analysed by .*'txt': 'standard'.* scores differ"):
        assert Elasticsearch(index.url).provenance()["analysis"] == {"title": "english", "txt": "standard"}


@pytest.mark.parametrize("spec", ["localhost:9200", "http://", "http://h:9x/wiki", "http://h/Wiki", "http://h/a,b"])
def test_addresses_that_are_none(spec: str) -> None:
    with pytest.raises(SettingError, match="elasticsearch:http://host:9200/wiki"):
        Address.parse(spec)


def test_addresses() -> None:
    assert str(Address.parse("elasticsearch:http://host:9200")) == "http://host:9200/wiki"
    assert str(Address.parse("https://host/search/wiki2/")) == "https://host/search/wiki2"


@pytest.mark.parametrize("k", [0, 10_001])
def test_k_has_limits(index: Index, k: Any) -> None:
    with pytest.raises(SettingError, match="from 1 to 10,000"):
        Elasticsearch(index.url).search("cat", k)
