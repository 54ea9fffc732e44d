"""A model server on this machine: it answers as llama.cpp's and vLLM's do, with Almanac's numbers, well or badly."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch

from dragin_lab.engines.load import LanguageModel

Json = dict[str, Any]
#: What a request may meet: a status with an error text; a cut before its n-th event, an end, a silence or an error
#: there; a wait until n streams are under way together.
Trouble = tuple[str, Any]

#: Questions of the slow tests that compare a served model with transformers: a part of what was compared once, 200.
MANY = int(os.environ.get("DRAGIN_LAB_SERVED_QUESTIONS", "40"))


@cache
def almanac() -> LanguageModel:
    """The model whose numbers the server gives, one forward for each token."""
    return LanguageModel.load(check=False)


@lru_cache(8192)
def row_after(ids: tuple[int, ...]) -> np.ndarray:
    """(V,) float64 log-probabilities after ids, which mostly go on after those of the last call."""
    lm = almanac()
    with lm.lock, torch.inference_mode():
        read, past = LAST.pop() if LAST else ((), None)
        past = past if read and ids[: len(read)] == read and len(ids) > len(read) else None
        fed = ids if past is None else ids[len(read) :]
        output = lm.model(torch.tensor([fed]), past_key_values=past, use_cache=True)
        LAST.append((ids, output.past_key_values))
    return torch.log_softmax(output.logits[0, -1].double(), -1).numpy()


LAST: list[Any] = []  # the ids of the last call, and their cache


@dataclass
class ModelServer:
    """A server of ``kind`` "llama.cpp" or "vLLM"; the next requests for tokens meet ``troubles``, None for none."""

    kind: str = "llama.cpp"
    name: str = "almanac.gguf"
    window: int | None = 2048
    vocabulary: int = 1452
    most: int | None = None  # of the likeliest tokens that it gives
    key: str = ""
    ends: tuple[int, ...] = (2,)
    shift: int = 0  # added to every id it chooses: another model
    holds_back: bool = True  # a stream leaves out tokens that end within a character, as llama.cpp's
    troubles: list[Trouble | None] = field(default_factory=list)
    asked: list[tuple[str, Json]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    events: int = 0  # sent
    under_way: int = 0  # streams
    most_under_way: int = 0
    address: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def row(self, ids: list[int]) -> np.ndarray:
        """(V,) float64 log-probabilities after the ids."""
        return row_after(tuple(ids)).copy()

    def write(self, ids: list[int], n: int, bias: dict[int, float]) -> Iterator[tuple[int, np.ndarray]]:
        """Up to n tokens, greedy, each with the row it was chosen from."""
        for _ in range(max(n, 1)):
            row = self.row(ids)
            scores = row.copy()
            for i, value in bias.items():
                scores[i] += value
            token = (int(scores.argmax()) + self.shift) % len(row)
            ids = [*ids, token]
            yield token, row
            if token in self.ends:
                return

    @property
    def listed(self) -> Json:
        if self.kind == "vLLM":
            return {"data": [{"id": self.name, "root": f"/models/{self.name}", "max_model_len": self.window,
                              "created": len(self.asked)}]}  # fmt: skip
        meta = {"n_vocab": self.vocabulary, "n_params": 2935488, "size": 11741952, "ftype": "all F32"}
        return {"data": [{"id": f"/models/{self.name}", "created": len(self.asked), "meta": meta}]}

    # -- the two interfaces -------------------------------------------------------------------------------------------

    def get(self, path: str) -> Json | None:
        if path == "/v1/models":
            return self.listed
        if path == "/props" and self.kind == "llama.cpp":
            return {"default_generation_settings": {"n_ctx": self.window}, "total_slots": 4}
        return {"version": "0.5"} if path == "/api/version" and self.kind == "Ollama" else None

    def events_of(self, path: str, body: Json) -> Iterator[Json]:
        llama = path == "/completion"
        k = body["n_probs"] if llama else body["logprobs"]
        k = self.vocabulary if k == -1 else min(k, self.most or k)
        pairs = body["logit_bias"] if llama else body["logit_bias"].items()
        bias = {int(i): -np.inf if value is False else value for i, value in pairs}
        text, written, reason = b"", 0, "length"
        for token, row in self.write(body["prompt"], body["n_predict" if llama else "max_tokens"], bias):
            best = np.argsort(-row, kind="stable")[:k].tolist()
            written += 1
            text += _bytes(token)
            reason = "eos" if token in self.ends else "length"
            if llama:
                if self.holds_back and not _is_whole(text):
                    continue
                top = [{"id": i, "token": "", "bytes": [], "logprob": row[i]} for i in best]
                found = {"id": token, "token": "", "logprob": row[token], "top_logprobs": top}
                yield {
                    "tokens": [token],
                    "stop": False,
                    "tokens_predicted": written,
                    "completion_probabilities": [found],
                }
            else:
                logprobs = {"tokens": [f"token_id:{token}"], "token_logprobs": [row[token]],
                            "top_logprobs": [{f"token_id:{i}": row[i] for i in {*best, token}}]}  # fmt: skip
                yield {"choices": [{"text": "", "logprobs": logprobs, "finish_reason": None}]}
        if llama:
            yield {"tokens": [], "stop": True, "stop_type": {"length": "limit"}.get(reason, reason),
                   "tokens_predicted": written, "model": self.name}  # fmt: skip
        else:
            yield {"choices": [{"text": "", "finish_reason": "stop" if reason == "eos" else reason}]}

    def whole(self, path: str, body: Json) -> Json:
        """What is answered without a stream."""
        held, self.holds_back = self.holds_back, False
        try:
            events = list(self.events_of(path, body))
        finally:
            self.holds_back = held
        if path == "/completion":
            found = [one for event in events for one in event.get("completion_probabilities", ())]
            return {"tokens": [i for event in events for i in event["tokens"]], "completion_probabilities": found}
        parts = [event["choices"][0]["logprobs"] for event in events[:-1]]
        return {"choices": [{"logprobs": {key: [v for part in parts for v in part[key]] for key in parts[0]}}]}


def _bytes(token: int) -> bytes:
    piece = almanac().tokenizer.hf.convert_ids_to_tokens([token])[0] or ""
    return bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.encode()


def _is_whole(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True


@contextmanager
def serve(model: ModelServer) -> Iterator[ModelServer]:
    """The server, on a port of 127.0.0.1 of its own, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            model.keys.append(self.headers.get("Authorization", ""))
            answer = model.get(self.path)
            self.send(404 if answer is None else 200, answer or {"error": {"message": "not found"}})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.keys.append(self.headers.get("Authorization", ""))
            model.asked.append((self.path, body))
            if model.key and self.headers.get("Authorization") != f"Bearer {model.key}":
                said = f"Invalid key {self.headers.get('Authorization')}"
                self.send(401, {"error": {"message": said}})
            elif self.path == "/detokenize":
                text = almanac().tokenizer.decode([i + model.shift for i in body["tokens"]], special=True)
                self.send(200, {"content" if model.kind == "llama.cpp" else "prompt": text})
            elif self.path not in ("/completion", "/v1/completions"):
                self.send(404, {"error": {"message": "not found"}})
            else:
                self.complete(body)

        def complete(self, body: Json) -> None:
            kind, value = (model.troubles.pop(0) if model.troubles else None) or ("", None)
            if kind == "status":
                self.send(value, {"error": {"message": f"trouble {value}"}})
                return
            if kind == "html":
                self.send(200, value)
                return
            if not body["stream"]:
                self.send(200, model.whole(self.path, body))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            model.under_way += 1
            model.most_under_way = max(model.most_under_way, model.under_way)
            try:
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.stream(body, kind, value)
            finally:
                model.under_way -= 1

        def stream(self, body: Json, kind: str, value: Any) -> None:
            if kind == "together":
                deadline = time.monotonic() + 30
                while model.most_under_way < value and time.monotonic() < deadline:
                    time.sleep(0.01)
            for n, event in enumerate(model.events_of(self.path, body)):
                if kind == "cut" and n == value:
                    self.wfile.write(b'data: {"tokens": [')
                    return
                if kind == "end" and n == value:
                    return
                if kind == "silence" and n == value:
                    model.over.wait(10)
                    return
                if kind == "error" and n == value:
                    event = {"error": {"message": "out of memory"}}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
                model.events += 1

        def send(self, status: int, answer: Any) -> None:
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *args: object) -> None: ...

    server = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    model.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield model
    finally:
        model.over.set()
        server.shutdown()
        server.server_close()
