"""What goes wrong with a model server: a clear error for each question, and what was done is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import KINDS
from model_server import ModelServer, Trouble, serve

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.core.episode import Write
from dragin_lab.errors import ModelError, ModelServerError, SettingError
from dragin_lab.run.rundir import RunError, RunStoppedError
from dragin_lab.served.server import KEY, TRIES
from dragin_lab.trace.trace import Prompt

DRAFT = Write(Prompt("Question: Who directed The Silent Fukain?\nAnswer:"), 12)
QUESTIONS = questions("2wikimultihopqa", "test")[:8]
SHORT: dict[str, Any] = {"variant": "paper", "max_new_tokens": 8}


def refused(address: str, match: str, **loading: Any) -> str:
    with pytest.raises((ModelError, SettingError), match=match) as caught:
        _ = dl.Lab(address, **{"tokenizer": "almanac", **loading}).model
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


# -- at opening -------------------------------------------------------------------------------------------------------


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(ModelServer()) as server:
        address = server.address
    monkeypatch.setattr("asyncio.sleep", _at_once)
    refused(address, f"{address} cannot be reached")


async def _at_once(seconds: float) -> None: ...


def test_a_server_of_another_kind(started: Callable[..., ModelServer]) -> None:
    refused(started("Ollama").address, "is Ollama, which takes no token ids; serve the same file with llama.cpp")
    web = started("web")
    web.get = lambda path: None  # type: ignore[method-assign]
    refused(web.address, "is neither llama.cpp's server nor an OpenAI-compatible one")
    web.get = lambda path: "<html>"  # type: ignore[assignment,method-assign,return-value]
    refused(web.address, "sent what is not JSON; is it the address of a model server")


def test_several_models(started: Callable[..., ModelServer]) -> None:
    server = started("vLLM")
    listed = server.listed
    server.get = lambda path: {"data": listed["data"] * 2} if path == "/v1/models" else None  # type: ignore[method-assign]
    refused(server.address, r"serves 2 models \(almanac.gguf, almanac.gguf\); start it with one")


def test_a_tokenizer_is_needed_and_no_second_engine(started: Callable[..., ModelServer]) -> None:
    address = started().address
    refused(address, "give the model's tokenizer", tokenizer=None)
    refused(address, "engine='llama.cpp': the server at .* is one", engine="llama.cpp")
    refused(address, "layer=2 has no meaning for a model behind a server", layer=2)
    refused(address, "likeliest=0", likeliest=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizer_of_another_model(started: Callable[..., ModelServer], kind: str) -> None:
    server = started(kind, shift=1)
    message = refused(server.address, "the tokenizer is not that of the model at http.*: its ids of 'Who directed")
    assert message.endswith("Load with check=False to use it anyway")
    assert dl.Lab(server.address, tokenizer="almanac", check=False).model.name == "almanac.gguf"


def test_a_tokenizer_with_more_tokens_than_the_model(started: Callable[..., ModelServer]) -> None:
    refused(started(vocabulary=1000).address, "it has 1,452 tokens, the model 1,000")


def test_a_server_that_gives_fewer_of_the_likeliest(started: Callable[..., ModelServer]) -> None:
    refused(started("vLLM", most=5).address, r"gives the 5 likeliest tokens of 20; give likeliest=5, or lift")


# -- while it writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "troubles",
    [
        [("status", 500), ("status", 503), ("status", 429)],
        [("cut", 0), ("cut", 3)],
        [("end", 4), None, ("end", 0)],
    ],
)
def test_passing_trouble_changes_nothing(asking: Callable[..., Any], kind: str, troubles: list[Trouble | None]) -> None:
    lab, server = asking(kind)
    expected = lab.model.generate(DRAFT)
    server.troubles = list(troubles)
    written = lab.model.generate(DRAFT)
    assert (written.ids.tolist(), written.stopped) == (expected.ids.tolist(), expected.stopped)
    assert len([body for _, body in server.asked if body.get("stream")]) > 2


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (("status", 500), "answered 500: trouble 500"),
        (("status", 400), "answered 400: trouble 400"),
        (("cut", 0), "broke off its answer"),
        (("end", 0), "ended its answer early"),
        (("error", 2), "failed while it wrote: 'out of memory'"),
        (("silence", 2), "broke off its answer"),
        (("html", "<html>"), "ended its answer early"),
    ],
)
def test_lasting_trouble_is_a_clear_error(asking: Callable[..., Any], trouble: Trouble, says: str) -> None:
    lab, server = asking(loading={"timeout": 1.0})
    server.troubles = [trouble] * 30
    with pytest.raises(ModelServerError, match=f"{server.address} {says}"):
        lab.model.generate(DRAFT)
    assert len(server.troubles) >= 30 - 4 * TRIES
    server.troubles.clear()
    assert lab.model.generate(DRAFT).stopped == "length"


def test_one_question_fails_and_the_others_are_answered(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    for size in (1, 3):
        server.troubles = [None, *[("status", 400)] * 1]
        traces = list(lab.ask_many(QUESTIONS[:4], "wo-rag", batch_size=size, **SHORT))
        assert sorted(trace.ended == "error" for trace in traces) == [False] * 3 + [True]
        assert [t.error for t in traces if t.error] == [f"{server.address} answered 400: trouble 400"]


def test_a_context_that_is_too_long_is_said_before_it_is_sent(asking: Callable[..., Any]) -> None:
    lab, server = asking(window=60)
    with pytest.raises(ModelError, match=r"do not fit into the 60 positions of almanac\.gguf at http"):
        lab.model.generate(Write(Prompt("word " * 60), 12))
    assert not server.asked


def test_a_run_stops_where_the_server_is_gone_and_goes_on_when_it_is_back(
    asking: Callable[..., Any], tmp_path: Path
) -> None:
    lab, server = asking()
    server.troubles = [None] * 2 + [("status", 400)] * 1000
    with pytest.raises(RunStoppedError, match=r"the last 5 questions failed with the same error: http.*trouble 400"):
        lab.run(QUESTIONS, "wo-rag", output=tmp_path, progress=False)
    server.troubles.clear()
    server.asked.clear()
    lab.run(QUESTIONS, "wo-rag", output=tmp_path, progress=False)
    assert [line["qid"] for line in _lines(tmp_path)] == [question.id for question in QUESTIONS]
    assert "error" not in {line["ended"] for line in _lines(tmp_path)}


@pytest.mark.parametrize("kind", KINDS)
def test_another_model_behind_the_address(asking: Callable[..., Any], kind: str, tmp_path: Path) -> None:
    lab, server = asking(kind)
    lab.model.generate(DRAFT)
    server.name = "other.gguf"
    with pytest.raises(ModelServerError, match=r"another model than almanac.gguf answers at http.*other.gguf"):
        lab.model.generate(DRAFT)
    with pytest.raises(RunStoppedError, match="another model"):
        lab.run(QUESTIONS, "wo-rag", output=tmp_path, progress=False)
    assert not [line for line in _lines(tmp_path) if line["ended"] != "error"]


def test_another_model_of_the_same_name_after_an_outage(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    server.troubles = [("cut", 3)]
    server.shift = 1
    for _ in range(2):  # not forgotten after it was said once
        with pytest.raises(
            ModelServerError, match=r"another model than almanac\.gguf .*answers fixed prompts otherwise"
        ):
            lab.model.generate(DRAFT)
    server.shift = 0
    assert lab.model.generate(DRAFT).stopped == "length"


def test_a_run_is_not_completed_by_another_model(started: Callable[..., ModelServer], tmp_path: Path) -> None:
    def run(server: ModelServer, count: int, **loading: Any) -> Any:
        with dl.Lab(server.address, tokenizer="almanac", **loading) as lab:
            return lab.run(QUESTIONS[:count], "wo-rag", output=tmp_path, progress=False)

    run(started(), 2)
    run(started(), 3)  # at another address
    with pytest.raises(RunError, match=r"model.*other\.gguf"):
        run(started(name="other.gguf"), 3)
    with pytest.raises(RunError, match="answers_sha256"):
        run(started(shift=1), 3, check=False)
    with pytest.raises(RunError, match="likeliest: 20 → 10"):
        run(started(), 3, likeliest=10)


def _lines(folder: Path) -> list[Any]:
    (path,) = folder.rglob("predictions.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_the_token_is_sent_and_stands_nowhere(
    started: Callable[..., ModelServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    secret = "sk-very-secret-0123456789"
    server = started(key=secret)
    refused(server.address, "answered 401: Invalid key None$")
    monkeypatch.setenv(KEY, "sk-another-9876543210")
    message = refused(server.address, r"answered 401: Invalid key Bearer \*\*\*$")
    assert "9876543210" not in message
    monkeypatch.setenv(KEY, secret)
    with dl.Lab(server.address, tokenizer="almanac") as lab:
        lab.run(QUESTIONS[:1], "flare", output=tmp_path, progress=False, traces=True)
        lab.ask(QUESTIONS[0], "wo-rag", **SHORT).save(tmp_path / "trace.safetensors")
        shown = f"{lab!r} {lab.model!r} {lab.model.provenance()} {lab.model.identity()}"
    assert set(server.keys[-5:]) == {f"Bearer {secret}"}
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert secret.encode() not in files
    assert secret not in shown + "".join(capfd.readouterr())
    assert server.address.encode() not in files, "a run may go on at another address"


def test_credentials_in_an_address_are_sent_and_not_shown(started: Callable[..., ModelServer]) -> None:
    server = started()
    lab = dl.Lab(server.address.replace("//", "//bo:hunter2@"), tokenizer="almanac")
    assert "hunter2" not in f"{lab!r}{lab.model!r}"
    assert server.keys[-1].startswith("Basic ")
