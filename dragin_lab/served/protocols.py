"""What llama.cpp and OpenAI-compatible servers are sent, and what they answer. Ids go in, and ids come out.

A server never makes ids of a text: Almanac's prompt of 19 ids is 71 or 20 by llama.cpp's readings of its vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, ClassVar

from dragin_lab.checks import shown
from dragin_lab.errors import ModelServerError
from dragin_lab.served.bounds import Token
from dragin_lab.served.server import Server

Json = dict[str, Any]
_MANY = 10_000.0  # added to a logit it decides the token
_MOST_STOPS = 4  # that OpenAI's interface takes


@dataclass(frozen=True)
class Asked:
    """What is asked of a server: to write up to n tokens after ``ids``, each with the k likeliest."""

    ids: Sequence[int]
    n: int
    k: int
    bias: Mapping[int, float] | None = None  # id -> what is added to its logit; -inf forbids it
    seed: int | None = None  # of sampling; None takes the likeliest
    stops: tuple[str, ...] = ()  # texts that end it, in the server's reading


@dataclass
class Interface:
    """A server's interface.

    ``vocabulary`` is V, how many tokens a distribution is over at most; ``window`` how many prompt and text may have,
    None where the server does not say. ``about`` is what identified the model when it was opened.
    """

    server: Server
    vocabulary: int = 0
    window: int | None = None
    slots: int | None = None  # drafts written at once; None where the server does not say
    about: Json = field(default_factory=dict)
    kind: ClassVar[str]
    path: ClassVar[str]  # where tokens are asked for

    def facts(self) -> Json:
        """What identifies the model, as far as the server says; values fit into JSON."""
        raise NotImplementedError

    def text_of(self, ids: Sequence[int]) -> str | None:
        """The text of ids by the server's own vocabulary; None where it does not say."""
        raise NotImplementedError

    def body(self, asked: Asked) -> Json:
        """The request, answered by a stream of events."""
        raise NotImplementedError

    def tokens(self, event: Json, k: int) -> list[Token]:
        """The tokens of an event, or of a whole answer, each with its k likeliest."""
        raise NotImplementedError

    def count(self, event: Json) -> int | None:
        """How many tokens were written up to an event, seen or not; None where the server does not say."""
        return None

    def unseen(self, asked: Asked) -> list[int]:
        """The ids of the next n tokens, those too that a stream leaves out."""
        raise NotImplementedError

    def answer(self, asked: Asked) -> Json:
        """The whole answer, without a stream."""
        return dict(self.server.ask(self.path, self.body(asked) | {"stream": False}))

    def ended(self, event: Json) -> str:
        """Why the server stopped: "length", "eos", "mark" at a text of ``Asked.stops``; "" where it goes on."""
        raise NotImplementedError

    def reused(self, event: Json) -> int:
        """How many tokens of the prompt were not read again; 0 where the server does not say."""
        return 0


@dataclass
class LlamaCpp(Interface):
    """llama.cpp's own interface, ``/completion``."""

    kind = "llama.cpp"
    path = "/completion"

    @classmethod
    def recognise(cls, server: Server) -> LlamaCpp | None:
        """The interface, where the server is one of llama.cpp."""
        props = server.ask("/props", optional=True)
        if not isinstance(props, dict) or "default_generation_settings" not in props:
            return None
        interface = cls(server, 0, props["default_generation_settings"].get("n_ctx"), props.get("total_slots"))
        interface.about = interface.facts()
        interface.vocabulary = int(interface.about["n_vocab"])
        return interface

    def facts(self) -> Json:
        data = _only_model(self.server)
        meta = data.get("meta") or {}
        return {
            "model": PurePath(str(data.get("id", ""))).name,
            **{name: meta.get(name) for name in ("n_vocab", "n_params", "size", "ftype")},
        }

    def text_of(self, ids: Sequence[int]) -> str | None:
        return str(self.server.ask("/detokenize", {"tokens": list(ids)})["content"])

    def body(self, asked: Asked) -> Json:
        # With no samplers at all, temperature 0 samples.
        chosen: Json = {"samplers": ["top_k"], "top_k": 1}
        if asked.seed is not None:
            chosen = {"samplers": ["temperature"], "temperature": 1.0, "seed": asked.seed % 2**32}
        bias = [[i, False if value == float("-inf") else value] for i, value in (asked.bias or {}).items()]
        return chosen | {
            "prompt": list(asked.ids),
            "n_predict": asked.n,
            "n_probs": asked.k,
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,
            "cache_prompt": True,
            "logit_bias": bias,
            "stop": list(asked.stops),
        }

    def tokens(self, event: Json, k: int) -> list[Token]:
        return [
            Token.ranked(one["id"], one["logprob"], {t["id"]: t["logprob"] for t in one["top_logprobs"]}, k)
            for one in event.get("completion_probabilities", ())
        ]

    def count(self, event: Json) -> int | None:
        written: int | None = event.get("tokens_predicted")
        return written

    def ended(self, event: Json) -> str:
        return {"limit": "length", "word": "mark"}.get(event["stop_type"], "eos") if event.get("stop") else ""

    def reused(self, event: Json) -> int:
        return int(event.get("timings", {}).get("cache_n", 0))

    def unseen(self, asked: Asked) -> list[int]:
        return [int(i) for i in self.answer(replace(asked, k=0))["tokens"]]


@dataclass
class OpenAI(Interface):
    """OpenAI's ``/v1/completions`` as vLLM has it, which takes ids and says them."""

    kind = "vLLM"
    path = "/v1/completions"

    @classmethod
    def recognise(cls, server: Server, tokens: int) -> OpenAI | None:
        """The interface, where the server lists its model; ``tokens`` is the size of the tokenizer's vocabulary.

        The output layer may be padded to more tokens. Bounds of entropy take some more, so that they stay bounds.
        """
        listed = server.ask("/v1/models", optional=True)
        if not isinstance(listed, dict) or not listed.get("data"):
            return None
        interface = cls(server, tokens + 1024, _only_model(server).get("max_model_len"))
        interface.about = interface.facts()
        return interface

    def facts(self) -> Json:
        data = _only_model(self.server)
        return {"model": str(data.get("id", "")), "root": PurePath(str(data.get("root", ""))).name}

    def text_of(self, ids: Sequence[int]) -> str | None:
        answer = self.server.ask("/detokenize", {"model": self.about["model"], "tokens": list(ids)}, optional=True)
        return None if answer is None else str(answer["prompt"])

    def body(self, asked: Asked) -> Json:
        return {
            "model": self.about["model"],
            "prompt": list(asked.ids),
            "max_tokens": asked.n,
            "logprobs": asked.k if asked.k < self.vocabulary else -1,
            "temperature": 0.0 if asked.seed is None else 1.0,
            "seed": asked.seed and asked.seed % 2**63,
            "stream": True,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
            "logit_bias": {str(i): min(max(value, -100.0), 100.0) for i, value in (asked.bias or {}).items()},
            "stop": list(asked.stops[:_MOST_STOPS]),
        }

    def tokens(self, event: Json, k: int) -> list[Token]:
        logprobs = _choice(event).get("logprobs") or {}
        columns = (logprobs.get(key) or () for key in ("tokens", "token_logprobs", "top_logprobs"))
        return [
            Token.ranked(_id(name), logprob, {_id(one): value for one, value in likeliest.items()}, k)
            for name, logprob, likeliest in zip(*columns, strict=True)
        ]

    def ended(self, event: Json) -> str:
        choice = _choice(event)
        reason = choice.get("finish_reason") or ""
        return ("mark" if choice.get("stop_reason") else "eos") if reason == "stop" else str(reason)


def recognise(server: Server, tokens: int) -> LlamaCpp | OpenAI:
    """Find out by asking what a server is; ``tokens`` is the size of the tokenizer's vocabulary.

    Raises ``ModelServerError`` where it is none that takes ids.
    """
    if (llama := LlamaCpp.recognise(server)) is not None:
        return llama
    if isinstance(server.ask("/api/version", optional=True), dict):
        raise ModelServerError(
            f"{server.address} is Ollama, which takes no token ids; serve the same file with llama.cpp: "
            "llama-server -m FILE.gguf, or give the file with engine='llama.cpp'"
        )
    if (openai := OpenAI.recognise(server, tokens)) is None:
        raise ModelServerError(
            f"{server.address} is neither llama.cpp's server nor an OpenAI-compatible one with /v1/models; give the "
            "address of llama-server or vllm serve, without a path"
        )
    return openai


def forced(asked: Asked, token: int) -> Asked:
    """The same for one position, with the token decided; its distribution is the raw one all the same.

    llama.cpp says nothing of a token that ends within a character, so another one is written in its place.
    """
    return replace(asked, n=1, bias={token: _MANY}, seed=None, stops=())


def _only_model(server: Server) -> Json:
    listed = server.ask("/v1/models")
    data = listed.get("data") if isinstance(listed, dict) else None
    if not data:
        raise ModelServerError(f"{server.address} lists no model")
    if len(data) != 1:
        names = ", ".join(str(one.get("id")) for one in data)
        raise ModelServerError(f"{server.address} serves {len(data)} models ({names}); start it with one")
    return dict(data[0])


def _choice(event: Json) -> Json:
    return dict((event.get("choices") or [{}])[0])


def _id(name: str) -> int:
    """An id written ``token_id:9``."""
    kind, _, number = str(name).partition(":")
    if kind != "token_id" or not number.isdecimal():
        raise ModelServerError(
            f"the server names a token {shown(name)} where its id was asked for; it needs vLLM's "
            "return_tokens_as_token_ids"
        )
    return int(number)
