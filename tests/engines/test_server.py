"""A model behind a server: the drafts and episodes of the same model in transformers, and what
goes wrong with one.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
from lm_tiny import decisions
from safetensors.torch import save_file

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.core.episode import Bias, Write
from dragin_lab.engines import requests as server
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError, RunError, SettingError
from dragin_lab.trace.trace import Prompt

PROMPT = Prompt("Question: Who directed The Silent Fukain?\nAnswer:")
QUESTIONS = questions("2wikimultihopqa", "test")


@pytest.fixture(scope="module")
def almanac() -> LanguageModel:
    return LanguageModel.load(check=False)


class FakeServer(ThreadingHTTPServer):
    """Answers as vLLM does, with Almanac's numbers; ``trouble`` is what the next requests for
    tokens meet instead.
    """

    daemon_threads = True

    def __init__(self, lm: LanguageModel, states: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lm, self.states, self.shift, self.files = lm, states, 0, 0
        self.trouble: list[bytes | int | Callable[[Any], None]] = []
        self.asked: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def handle_error(self, *_: Any) -> None: ...

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/models":
            return {
                "data": [{"id": "tiny", "max_model_len": 2048, "created": len(self.asked)}],
                "object": "list",
            }
        if path == "/detokenize":
            return {
                "prompt": self.lm.tokenizer.decode(
                    [i + self.shift for i in body["tokens"]], special=True
                )
            }
        several = isinstance(body["prompt"][0], list)
        prompts = body["prompt"] if several else [body["prompt"]]
        answer: dict[str, Any] = {
            "choices": [self.write(i, ids, body) for i, ids in enumerate(prompts)]
        }
        if self.states is not None and not several:
            self.files += 1
            path = str(self.states / f"{self.files}.safetensors")
            with torch.inference_mode():
                output = self.lm.model(torch.tensor(prompts), output_hidden_states=True)
            states = {
                "hidden_states": output.hidden_states[-2][0][:, None].clone(),
                "token_ids": torch.tensor(prompts[0]),
            }
            lock = threading.Event()
            threading.Thread(target=write_late, args=(path, states, lock)).start()
            lock.wait()
            answer["kv_transfer_params"] = {"hidden_states_path": path}
        return answer

    def write(self, index: int, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        bias = {int(i): value for i, value in body.get("logit_bias", {}).items()}
        tokens, rows, reason = list(ids), [], "length"
        with torch.inference_mode():
            if body.get("echo"):
                before = self.lm.model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
                rows = [(ids[0], None), *zip(ids[1:], before, strict=True)]
            cached, new = None, tokens
            for _ in range(body["max_tokens"]):
                output = self.lm.model(torch.tensor([new]), past_key_values=cached)
                cached, row = output.past_key_values, output.logits[0, -1].log_softmax(-1)
                scores = row.clone()
                for i, value in bias.items():
                    scores[i] += value
                tokens.append((int(scores.argmax()) + self.shift) % len(row))
                new = tokens[-1:]
                rows.append((tokens[-1], row))
                if tokens[-1] in self.lm.eos:
                    reason = "stop"
                    break
        tops: list[Any] = []
        for _, row in rows:
            best = None if row is None else row.topk(body["logprobs"])
            tops.append(
                best
                and {
                    f"token_id:{i}": v for v, i in zip(*map(torch.Tensor.tolist, best), strict=True)
                }
            )
        return {
            "index": index,
            "text": "",
            "finish_reason": reason,
            "logprobs": {
                "tokens": [f"token_id:{i}" for i, _ in rows],
                "token_logprobs": [None if row is None else float(row[i]) for i, row in rows],
                "top_logprobs": tops,
            },
        }


def write_late(path: str, states: dict[str, torch.Tensor], begun: threading.Event) -> None:
    """As vLLM does: after its answer, holding a lock on a file beside it."""
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun.set()
        time.sleep(0.02)
        save_file(states, path)


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.send(200, json.dumps(self.server.answer(self.path, {})).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            self.server.asked.append(body)
            if self.server.trouble:
                trouble = self.server.trouble.pop(0)
                if callable(trouble):
                    trouble(self.wfile)
                elif isinstance(trouble, bytes):
                    self.send(200, trouble)
                else:
                    self.send(trouble, b'{"error": {"message": "out of order"}}')
                return
        self.send(200, json.dumps(self.server.answer(self.path, body)).encode())

    def send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def asking(almanac: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a server, in trouble or with other ids, and opens a lab that asks it."""
    monkeypatch.setattr(server, "_PAUSE", 0.01)
    with ExitStack() as stack:

        def open_lab(
            states: Path | None = None, *, trouble: Any = (), shift: int = 0, **loading: Any
        ) -> tuple[dl.Lab, FakeServer]:
            fake = FakeServer(almanac, states)
            fake.trouble, fake.shift = list(trouble), shift
            stack.callback(fake.server_close)
            stack.callback(fake.shutdown)
            lab = stack.enter_context(dl.Lab(fake.address, **{"tokenizer": "almanac"} | loading))
            _ = lab.model
            return lab, fake

        yield open_lab


def same(ours: dl.Trace, theirs: dl.Trace) -> None:
    assert (ours.text, ours.queries, ours.answer) == (theirs.text, theirs.queries, theirs.answer)
    assert decisions(ours) == decisions(theirs)


def test_without_hidden_states_there_are_probabilities_and_no_entropies(
    asking: Any, almanac: LanguageModel
) -> None:
    lab, _ = asking()
    unlikely = tuple(almanac.tokenizer.encode("The river", special=False))
    for draft in (
        Write(PROMPT, 8, prefix=unlikely),
        Write(PROMPT, 6, bias=(Bias("The", 50.0, stop=1), Bias(" of", -50.0, first=3, stop=5))),
    ):
        ours, theirs = lab.model.write(draft), almanac.write(draft)
        assert ours.ids.tolist() == theirs.ids.tolist()
        np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-4)
        assert np.isnan(ours.entropy).all()
    ours, theirs = (lm.score(PROMPT, " The river is wide.") for lm in (lab.model, almanac))
    assert (ours.ids.tolist(), ours.stopped) == (theirs.ids.tolist(), "forced")
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=1e-4)
    prompts, ids = [PROMPT, Prompt("A film.\n" + PROMPT.text)], ours.ids.tolist()
    np.testing.assert_allclose(
        lab.model.score_many(prompts, ids), almanac.score_many(prompts, ids), atol=1e-4
    )
    with pytest.raises(ModelError, match="ServerModel has no generate"), dl.capture(lab.model):
        pass
    with pytest.raises(
        SettingError, match=r"looks at attention, and tiny has none; .*extract_hidden_states"
    ):
        lab.ask(QUESTIONS[0], "dragin")
    with pytest.raises(
        SettingError, match=r"'entropy' reads entropies, and tiny gives none .*when='probability'"
    ):
        lab.ask(QUESTIONS[0], "dragin", when="entropy", what="question")
    assert (
        lab.ask(QUESTIONS[0], "dragin", when="probability@0.5", what="question").ended == "answered"
    )


def test_with_hidden_states_the_last_block_makes_dragin_exact(
    asking: Any, almanac: LanguageModel, tmp_path: Path
) -> None:
    lab, _ = asking(tmp_path)
    draft = Write(PROMPT, 10, attention=True, among=True)
    ours, theirs = lab.model.write(draft), almanac.write(draft)
    for name in ("entropy", "logprob", "received", "attention", "among"):
        one, other = (getattr(written, name).astype(float) for written in (ours, theirs))
        np.testing.assert_allclose(one, other, atol=1e-4, err_msg=name)
    ours, theirs = (
        lm.score(PROMPT, " The river is wide.", attention=True) for lm in (lab.model, almanac)
    )
    np.testing.assert_allclose(ours.entropy, theirs.entropy, atol=1e-4)
    np.testing.assert_allclose(ours.received, theirs.received, atol=1e-4)
    options = {"max_new_tokens": 24}
    same(
        lab.ask(QUESTIONS[0], "dragin", **options),
        dl.Lab(almanac).ask(QUESTIONS[0], "dragin", **options),
    )
    assert np.abs(lab.model.attend([5, 6, 7]) - almanac.attend([5, 6, 7])).max() < 1e-5


def test_a_server_is_asked_for_no_text_that_its_tokenizer_closes(
    asking: Any, almanac: LanguageModel, tmp_path: Path
) -> None:
    lm_tiny.closing(almanac.tokenizer.hf).save_pretrained(tmp_path / "closing")
    lab, fake = asking(tokenizer=tmp_path / "closing")
    lab.model.score(PROMPT, " The river is wide.")
    lab.attribute(lab.ask(QUESTIONS[0], "flare", max_new_tokens=12))
    assert len(fake.asked) > 5
    for body in fake.asked:
        ids = body["prompt"]
        scored = ids[-1:] if body.get("echo") else []  # the end mark that the model wrote itself
        assert almanac.eos.isdisjoint(ids[: len(ids) - len(scored)])


@pytest.mark.parametrize("method", ["flare", "flare-instruct"])
def test_episodes_are_the_same_side_by_side_and_from_a_cache(
    asking: Any, almanac: LanguageModel, method: str
) -> None:
    lab, fake = asking(cache=True)
    chosen = dl.method(method, variant="paper", max_new_tokens=16)
    traces = list(lab.ask_many(QUESTIONS[:2], chosen, batch_size=2))
    count = len(fake.asked)
    for trace in traces:
        same(trace, dl.Lab(almanac).ask(trace.question, chosen))
        same(trace, lab.ask(trace.question, chosen))
    assert len(fake.asked) == count


def raw(data: bytes, again: bytes = b"") -> Callable[[Any], None]:
    """An answer of these bytes, after which others come without end."""

    def answer(wfile: Any) -> None:
        wfile.write(data)
        for _ in range(1000 if again else 0):
            wfile.write(again)
            wfile.flush()
            time.sleep(0.02)

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
CUT = raw(OK + b"Content-Length: 1000\r\n\r\n{")
TROUBLES = [
    400,
    CUT,
    raw(OK + b"\r\n", b" "),
    # HTTP/2
    raw(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00"),
    raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
    raw(OK + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}"),
]


def test_what_a_later_try_mends_is_tried_again(asking: Any) -> None:
    lab, fake = asking()
    expected = lab.model.write(Write(PROMPT, 4)).ids.tolist()
    for trouble in ([503, 429], [CUT, 500]):
        fake.trouble = trouble
        assert lab.model.write(Write(PROMPT, 4)).ids.tolist() == expected


ODD = [
    b"null",
    b"[]",
    b"{}",
    b'{"choices": null}',
    b'{"choices": []}',
    b'{"choices": [{}]}',
    b'{"choices": [{"logprobs": 1}]}',
    (
        b'{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs":'
        b' [{"a": -1}]}}]}'
    ),
    (
        b'{"choices": [{"logprobs": {"tokens": ["token_id:5"], "token_logprobs": [],'
        b' "top_logprobs": [{}]}}]}'
    ),
    b'{"choices": [{"logprobs": {"tokens": [], "token_logprobs": [], "top_logprobs": []}}]}',
    (
        b'{"choices": [{"logprobs": {"tokens": ["token_id:5"], "token_logprobs": [-1],'
        b' "top_logprobs": [null]}}]}'
    ),
    (
        b'{"choices": [{"logprobs": {"tokens": ["token_id:99999999999"], "token_logprobs": [-1],'
        b' "top_logprobs": [{}]}}]}'
    ),
    b"<html>",
    b"\xff\xfe",
    b"[" * 100_000,
    b"",
]


@pytest.mark.parametrize("trouble", [*ODD, *TROUBLES], ids=range(len(ODD) + len(TROUBLES)))
def test_every_odd_answer_is_a_clear_error_within_the_deadline(asking: Any, trouble: Any) -> None:
    lab, fake = asking()
    expected = lab.model.write(Write(PROMPT, 4)).ids.tolist()
    fake.trouble, lab.model.server.timeout = [trouble] * 4, 1.0
    with pytest.raises(ModelError, match=r"127\.0\.0\.1") as caught:
        lab.model.write(Write(PROMPT, 4))
    assert len(str(caught.value).splitlines()) == 1
    fake.trouble, lab.model.server.timeout = [], 120.0
    assert lab.model.write(Write(PROMPT, 4)).ids.tolist() == expected


@pytest.mark.parametrize("trouble", TROUBLES[:3], ids=["refused", "cut", "endless"])
def test_opening_a_server_in_trouble_ends_within_its_deadline(asking: Any, trouble: Any) -> None:
    with pytest.raises(ModelError, match=r"127\.0\.0\.1"):
        asking(trouble=[trouble] * 100, timeout=1.0)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_an_interrupt_ends_the_wait_for_a_server_and_the_next_question_is_answered(
    asking: Any, batch_size: int
) -> None:
    lab, fake = asking()
    method = dl.method("wo-rag", variant="paper", max_new_tokens=4)
    waits = threading.Event()

    def silent(wfile: Any) -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        waits.wait(30)

    fake.trouble = [silent]
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(lab.ask_many(["Who?", "Where?"], method, batch_size=batch_size))
    assert time.monotonic() - begun < 20
    waits.set()
    assert lab.ask("Who?", method).ended == "length"


def test_a_run_stops_where_the_server_is_gone_and_goes_on_when_it_is_back(
    asking: Any, tmp_path: Path
) -> None:
    lab, fake = asking()
    method = dl.method("wo-rag", variant="paper", max_new_tokens=4)
    fake.trouble = [400] * 1000
    with pytest.raises(
        RunError,
        match=r"the last 5 questions failed with the same error: http.*out of order",
    ):
        lab.run(QUESTIONS[:8], method, output=tmp_path, progress=False)
    fake.trouble = []
    lab.run(QUESTIONS[:8], method, output=tmp_path, progress=False)
    (path,) = tmp_path.rglob("predictions.jsonl")
    assert len(path.read_text().splitlines()) == 8


def test_what_cannot_be_opened_is_refused(asking: Any) -> None:
    with pytest.raises(SettingError, match="give the model's tokenizer"):
        _ = dl.Lab("http://127.0.0.1:9").model
    with pytest.raises(ModelError, match="cannot be reached"):
        _ = dl.Lab("http://127.0.0.1:9", tokenizer="almanac").model
    with pytest.raises(ModelError, match="the tokenizer is not that of the model at"):
        asking(shift=1)
    with pytest.raises(
        SettingError, match="layer=3 has no meaning for a model behind a server; leave it out"
    ):
        asking(layer=3)
    # what stands for the default has one for any engine
    lab, _ = asking(layer="last", alternatives=5)
    assert lab.ask("Who?", "wo-rag").ended != "error"
