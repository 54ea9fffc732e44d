"""A web server on this machine that sends files well or badly, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Web:
    """Files by path, and how they are sent."""

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)  # bytes after which the next connections end
    answers: list[int] = field(default_factory=list)  # statuses that the next requests get instead
    asked: list[dict[str, str]] = field(default_factory=list)  # the headers of each request
    address: str = ""

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"


@contextmanager
def listen(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on a port of 127.0.0.1 of its own, until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serve(web: Web) -> Iterator[Web]:
    """A server of these files, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            web.asked.append(dict(self.headers))
            data = web.files.get(self.path.lstrip("/"))
            if web.answers:
                self.send_error(web.answers.pop(0))
                return
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: web.cuts.pop(0)] if web.cuts else data)

    with listen(Handler) as web.address:
        yield web
