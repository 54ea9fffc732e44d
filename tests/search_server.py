"""A web server that answers as the documented interface of Elasticsearch does, over a few passages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from web import listen

from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus

Json = dict[str, Any]
#: What a request may meet instead of its answer: a status with headers and a body, a cut, a silence, a drip.
Trouble = tuple[int, dict[str, str], Json] | str


@dataclass
class Index:
    """An index ``wiki`` of passages, ranked by our own BM25; what it was asked; and the next requests' troubles."""

    corpus: Corpus
    mappings: Json = field(
        default_factory=lambda: {name: {"type": "text", "analyzer": "english"} for name in ("title", "txt")}
    )
    about: Json = field(default_factory=lambda: {"version": {"number": "8.15.0"}})
    count: int | None = None
    answers: list[Json] = field(default_factory=list)  # of the next searches, in place of what is found
    troubles: list[Trouble] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str], list[Json]]] = field(default_factory=list)
    address: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.address}/wiki"

    def answer(self, path: str, body: list[Json]) -> Json | None:
        path = path.partition("?")[0]
        if path == "/":
            return self.about
        if path == "/wiki":
            settings = {"index": {"uuid": "u1", "number_of_shards": "1"}}
            return {"wiki": {"aliases": {}, "mappings": {"properties": self.mappings}, "settings": settings}}
        if path == "/wiki/_count":
            count = len(self.corpus) if self.count is None else self.count
            return {"count": count, "_shards": {"total": 1, "successful": 1, "failed": 0}}
        if path == "/wiki/_mget":
            ids = {p.id for p in self.corpus}
            return {"docs": [self.document(id) if id in ids else {"_id": id, "found": False} for id in body[0]["ids"]]}
        if path == "/wiki/_search":
            return self.search(body[0])
        if path == "/wiki/_msearch":
            return {"took": 1, "responses": [self.search(each) | {"status": 200} for each in body[1::2]]}
        return None

    def document(self, id: str) -> Json:
        passage = self.corpus.get(id)
        return {"_id": id, "found": True, "_source": {"title": passage.title, "txt": passage.text}}

    def search(self, asked: Json) -> Json:
        if self.answers:
            return self.answers.pop(0)
        found = BM25(self.corpus).search(asked["query"]["multi_match"]["query"], asked["size"])
        hits = [self.document(p.id) | {"_score": p.score, "_index": "wiki"} for p in found]
        shards = {"total": 1, "successful": 1, "failed": 0}
        return {"took": 1, "timed_out": False, "_shards": shards, "hits": {"hits": hits}}


@contextmanager
def serve(index: Index) -> Iterator[Index]:
    """The server, on a port of 127.0.0.1 of its own, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = [json.loads(line) for line in data.decode().splitlines()]
            index.asked.append((self.command, self.path, dict(self.headers), body))
            trouble = index.troubles.pop(0) if index.troubles else None
            if trouble == "cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"half')
            elif trouble == "silence":
                index.over.wait(5)
            elif trouble in ("dripping headers", "dripping body"):
                with suppress(OSError):  # the client goes away
                    self.drip(b"X: y\r\n" if trouble == "dripping headers" else b"Content-Length: 1000\r\n\r\n")
            elif isinstance(trouble, tuple):
                self.send(trouble[0], trouble[2], trouble[1])
            elif (answer := index.answer(self.path, body)) is None:
                self.send(404, {"error": {"root_cause": [{"type": "index_not_found", "reason": f"no {self.path}"}]}})
            else:
                self.send(200, answer)

        do_POST = do_GET  # noqa: N815

        def drip(self, headers: bytes) -> None:
            """Send a space of what comes next every 20 ms, for five seconds in all."""
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + headers)
            for _ in range(250):
                self.wfile.write(b" ")
                if index.over.wait(0.02):
                    return

        def send(self, status: int, answer: Json, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with listen(Handler) as index.address:
        try:
            yield index
        finally:
            index.over.set()
