"""``ServerModel``: a model behind an OpenAI-compatible server.

The server writes a draft whole, and the draft's ``Stop`` cuts it here. If the server gives what
enters the last block, everything is measured here; otherwise there are the probabilities of the k
likeliest tokens, and no entropies.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from dragin_lab.checks import count
from dragin_lab.core.episode import Write
from dragin_lab.engines.check import TEXTS, Check, apply_checks
from dragin_lab.engines.engine import Engine, Facts, OnToken
from dragin_lab.engines.requests import (
    Completion,
    Detokenized,
    LastBlock,
    ModelServer,
    ServedModels,
    ServerBatch,
    WrittenText,
    read_states,
)
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.engines.writing import Writing, measure_logits
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft

#: Prompts: the ids that a model writes after them tell whether it is the same model.
_KNOWN_BY = ("The capital of France is", "1, 2, 3, 4,", "Once upon a time")
_OPENING = 20.0  # seconds of a request at opening
_PADDED = 1024  # ids that an output layer may have beyond the tokenizer's


class ServerModel(Engine):
    """A model behind a server that takes and gives token ids, such as vLLM.

    Args:
        tokenizer, folder: the model's own, and where it lies; with its weights, if the server gives
        hidden states. likeliest: k, the tokens that the server is asked for at each place. sample:
        draw tokens at temperature 1, instead of taking the likeliest. served_name: which of the
        server's models; needed where it serves several, such as adapters.

    Raises ``ModelError`` for a server that fails, gives no ids, or fewer than k tokens, and
    ``ModelError`` for a tokenizer or a last block that are not the model's.
    """

    tokenizer: HFTokenizer

    def __init__(
        self,
        server: ModelServer,
        tokenizer: HFTokenizer,
        folder: str,
        *,
        likeliest: int = 20,
        sample: bool = False,
        check: bool = True,
        served_name: str | None = None,
    ) -> None:
        self.served_name = served_name
        self.server = server
        self.tokenizer = tokenizer
        self.sample = sample
        self.eos = tokenizer.ends
        self.alternatives = count("likeliest", likeliest)
        self.vocabulary = len(tokenizer) + _PADDED
        self.about = self._describe_model()
        self.name = self.about["model"]
        self.context_window = self.about["window"]
        self.block: LastBlock | None = None
        self.no_attention = (
            "its server gives no hidden states (vllm serve with extract_hidden_states does)"
        )
        self.has_entropy = False
        self._known_by = [tokenizer.encode(text, special=True) for text in _KNOWN_BY]
        answer = self._ask(self._known_by[0], 1)
        if answer.kv_transfer_params and answer.kv_transfer_params.hidden_states_path:
            self.block = LastBlock(folder)
            self.no_attention = ""
            self.has_attention = self.has_entropy = True
            self._read_states(answer, self._known_by[0])
        self._answers = self._write_known()
        if check:
            apply_checks(self, self.check())

    def _describe_model(self) -> Facts:
        """What the server says of its model; values fit into JSON."""
        models = self.server.ask("/v1/models", ServedModels, within=_OPENING).data
        if not models:
            raise ModelError(f"{self.server.address} serves no model; start it with one")
        chosen = [model for model in models if self.served_name in (None, model.id)]
        # names of one model are one
        if len({(model.root, model.parent) for model in chosen}) != 1:
            names = ", ".join(model.id for model in models)
            raise ModelError(
                f"{self.server.address} serves {names}; say which by its name:"
                f" served_name={models[0].id!r}"
            )
        return {"model": chosen[0].id, "root": chosen[0].root, "window": chosen[0].max_model_len}

    def _ask(
        self,
        ids: list[int],
        n: int,
        within: float | None = _OPENING,
        *,
        states: bool = False,
        **more: Any,
    ) -> Completion:
        """What the server writes after some ids. With ``states`` the file of hidden states is
        left to be read.
        """
        body = {
            "model": self.about["model"],
            "prompt": ids,
            "max_tokens": n,
            "logprobs": self.alternatives,
            "temperature": 0.0,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
        }
        answer = self.server.ask("/v1/completions", Completion, body | more, within)
        if not answer.choices:
            raise ModelError(f"{self.server.address} wrote nothing")
        if self.block is not None and not states:
            self._read_states(answer, ids)
        return answer

    def _read(self, choice: WrittenText, skip: int, most: int) -> list[tuple[int, Any]]:
        """Each token after the first ``skip``: its id, and what is known of its distribution, as
        ``measure_logits`` gives it.
        """
        parts = choice.logprobs
        tokens = []
        sizes = len(parts.tokens), len(parts.token_logprobs), len(parts.top_logprobs)
        if min(sizes) < max(sizes) or max(sizes) > skip + most:
            raise ModelError(f"{self.server.address} sent {sizes} tokens and log-probabilities")
        columns = zip(parts.tokens, parts.token_logprobs, parts.top_logprobs, strict=True)
        for token, logprob, top in list(columns)[skip:]:
            best = nlargest(self.alternatives, (top or {}).items(), key=itemgetter(1))
            if len(best) < self.alternatives:
                raise ModelError(
                    f"{self.server.address} gives the {len(best)} likeliest tokens of"
                    f" {self.alternatives}; give likeliest={len(best)}, or lift the server's limit"
                    " (vllm serve --max-logprobs)"
                )
            names, values = zip(*best, strict=True)
            ids = [self._parse_id(name) for name in names]
            own = np.nan if logprob is None else logprob
            tokens.append((self._parse_id(token), (np.nan, own, ids, np.exp(values))))
        return tokens

    def _parse_id(self, name: str) -> int:
        """An id written ``token_id:9``."""
        number = re.fullmatch(r"token_id:(\d{1,9})", name)
        if number is None or int(number[1]) >= self.vocabulary:
            raise ModelError(
                f"{self.server.address} names a token {name[:40]!r} where its id was asked for, as"
                " vllm serve says it; a GGUF file runs with engine='llama.cpp'"
            )
        return int(number[1])

    def _write_known(self) -> list[list[int]]:
        """The ids that the model writes after fixed prompts."""
        return [
            [token for token, _ in self._read(self._ask(ids, 4).choices[0], 0, 4)]
            for ids in self._known_by
        ]

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        """As ``Engine.write``; the tokens come together, when the server has written them.

        Raises ``ModelError`` where the server fails.
        """
        writing = Writing(self, request, seed, watch)
        while not writing.stopped:
            self._continue_draft(writing, seed)
        return writing.finish()

    def batch(self, size: int) -> ServerBatch:
        return ServerBatch(self, size)

    def _continue_draft(self, writing: Writing, seed: int | None) -> None:
        """Have the server write until a bias begins or ends, and add its tokens up to the
        ``Stop``.
        """
        request = writing.request
        t = len(writing.ids)
        before = [*writing.prompt_ids, *writing.ids]
        forced = request.prefix[t : request.max_new_tokens]
        first = t + len(forced)
        edges = [request.max_new_tokens]
        for bias in request.bias:
            edges += [edge for edge in (bias.first, bias.stop) if edge is not None and edge > t]
        left = max(min(edges) - first, 1)
        echo = bool(forced) and self.block is None  # what the server measures on the forced tokens
        more: Facts = {"echo": True} if echo else {}
        added = defaultdict[str, float](float)
        for ids, value in writing.biases(first):
            for name in map(str, ids):
                added[name] = float(np.clip(added[name] + value, -100, 100))
        if added:
            more["logit_bias"] = added
        if self.sample:
            number = time.time_ns() if seed is None else seed + t
            more |= {"temperature": 1.0, "seed": number % 2**63}
        choice = self._ask([*before, *forced], left, None, **more).choices[0]
        tokens = self._read(choice, len(before) if echo else 0, len(forced) + left)
        if not tokens and (echo or not forced):
            raise ModelError(f"{self.server.address} wrote no token")
        rows = None
        if self.block is not None:
            tokens, rows = self._measure(before, [*forced, *(token for token, _ in tokens)])
        for i, (token, values) in enumerate(tokens):
            self._add_row(writing, rows, i)
            writing.add_token(token, values)
            if writing.stopped:
                break
        self._add_row(writing, rows, len(writing.ids) - t)
        if not writing.stopped and choice.finish_reason == "stop" and choice.stop_reason is None:
            writing.stopped = "eos"  # where the server gives no token for it

    def _measure(self, before: list[int], ids: list[int]) -> tuple[list[tuple[int, Any]], Any]:
        """Tokens after a text with what the last block gives for them, and its attention
        (h, m + 1, keys).
        """
        logits, rows = self._last_block([*before, *ids], len(ids) + 1)
        measured = measure_logits(logits[:-1], torch.tensor(ids), self.alternatives)
        values = zip(*(part.numpy() for part in measured), strict=True)
        return list(zip(ids, values, strict=True)), rows

    def _last_block(self, ids: list[int], last: int) -> tuple[Any, Any]:
        """Logits (last, V) and attention (h, last, n) of the last positions of a text, computed
        here.
        """
        if self.block is None:
            raise ModelError(f"{self.name} has no attention: {self.no_attention}")
        return self.block.measure(
            self._read_states(self._ask(ids, 1, None, states=True), ids), last
        )

    def _read_states(self, answer: Completion, ids: list[int]) -> Any:
        """What enters the last block for the ids that were asked about; a server writes a file
        for every request.
        """
        states = answer.kv_transfer_params
        if self.block is None or states is None or states.hidden_states_path is None:
            raise ModelError(f"{self.server.address} gave no hidden states, as it did before")
        return read_states(states.hidden_states_path, ids, self.block.width, self.server.timeout)

    def _add_row(self, writing: Writing, rows: Any, i: int) -> None:
        if rows is not None:
            row = rows[:, i, : len(writing.prompt_ids) + len(writing.ids)]
            writing.add_row(row.mean(0), row)

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        return self._last_block(list(ids), len(ids))[1]

    def check(self) -> list[Check]:
        """Whether ids mean the same texts to the server, and the last block gives its
        log-probabilities.
        """
        wrong = [text for text in TEXTS if not self._reads_alike(text)]
        other = (
            f"the tokenizer is not that of the model at {self.server.address}, where its ids of"
            f" {wrong[:1]} differ"
        )
        apart = 0.0
        for ids in self._known_by[:2] if self.block is not None else ():
            [(_, (_, _, best, probs))] = self._read(self._ask(ids, 1).choices[0], 0, 1)
            logs = self._last_block(ids, 1)[0][0].log_softmax(-1).numpy()
            apart = max(apart, float(np.abs(logs[best[:5]] - np.log(probs[:5])).max()))
        note = "the last block of the tokenizer's folder gives other probabilities than the server"
        return [
            Check("texts that the server reads otherwise", len(wrong), 0, other if wrong else ""),
            Check("log-probabilities of the last block", apart, 0.1, note if apart > 0.1 else ""),
        ]

    def _reads_alike(self, text: str) -> bool:
        ids = self.tokenizer.encode(text, special=False)
        body = {"model": self.about["model"], "tokens": ids}
        try:
            there = self.server.ask("/detokenize", Detokenized, body, _OPENING).prompt
        except ModelError:
            return True  # it does not say
        return there.strip() == self.tokenizer.decode(ids, special=True).strip()

    def provenance(self) -> Facts:
        """As ``Engine.provenance``; in a probe's place stands what it wrote when it was opened."""
        return {  # no address, no token
            "model": self.name,
            "served": self.about,
            "answers": self._answers,
            "tokenizer_sha256": self.tokenizer.sha256,
            "likeliest": self.alternatives,
            "attention": (
                None if self.block is None else "the last block's, computed from what enters it"
            ),
            "decoding": "sample" if self.sample else "greedy",
        }

    def identity(self) -> Facts:
        return self.identify(model=self.name, eos=sorted(self.eos))

    def close(self) -> None:
        self.server.close()

    def __repr__(self) -> str:
        gives = (
            "the last block" if self.has_attention else f"the {self.alternatives} likeliest tokens"
        )
        decoding = "sampling" if self.sample else "greedy"
        return f"ServerModel({self.name} at {self.server.address}, {gives}, {decoding})"
