"""A draft while it is written: its tokens, what is measured on them, when it stops, and its
key-value cache.

Prefixes of prompts are read once and kept; several texts stand side by side in one cache.
"""

from __future__ import annotations

import copy
import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from dragin_lab.core.episode import Stop, Write
from dragin_lab.engines.engine import OnToken
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft, Prompt

SHARE = "half of the free memory"  # for all that is kept, as provenance says
_UNKNOWN = 4 * 2**30  # bytes that count as free where the system does not say
_MEMORY = Path("/proc/meminfo")  # of the machine
_GROUP = Path("/sys/fs/cgroup")  # of a container (cgroup v2)
PARTS = ("exemplars", "passages")  # named spans of a prompt, after which its cache is kept
OTHER_TYPE = 'load it with dtype="bfloat16" or "float32"'  # where float16 does not do
Ids = tuple[int, ...]  # that a text begins with
_BLOCK = 512  # ids of a vocabulary whose likeliest is found at once


class Writing:
    """A draft while it is written.

    After each forward call ``add_row``, then ``add_token``, until it is ``complete``; then
    ``finish``. Attention row r is that of query position p - 1 + r, which predicts token r. The row
    of the last token takes one more forward. ``prompt`` (ids and offsets) stands in for the
    request's.
    """

    def __init__(
        self,
        lm: Any,
        request: Write,
        seed: int | None = None,
        watch: OnToken | None = None,
        *,
        prompt: Any = None,
    ) -> None:
        self.began = time.perf_counter()
        if request.max_new_tokens < 1:
            raise ModelError(f"max_new_tokens={request.max_new_tokens}: give 1 or more")
        self.prompt_ids, self.prompt_offsets = prompt or lm.tokenizer.encode_prompt(
            request.prompt, lm.name
        )
        lm.refuse_overrun(len(self.prompt_ids), request.max_new_tokens)
        #: Where its hidden states are found, if they are kept.
        self.state: Any = None if request.hidden is None else lm.find_state(request.hidden)
        self.lm = lm
        self.request = request
        self.watch = watch
        self.blind = not lm.has_attention
        self.ids: list[int] = []
        self.stopped = ""  # why it ended; empty while it goes on
        self.error: Exception | None = None  # of its ``Stop``, or logits that are not finite
        # rows that are known, tokens not read again, forwards
        self.rows = self.reused = self.forwards = 0
        # None takes the likeliest token
        self.generator = torch.Generator(lm.device) if lm.sample else None
        if self.generator is not None:
            self.generator.seed() if seed is None else self.generator.manual_seed(seed)
        self.cache: Any = None  # of its text so far, between forwards
        self.spans = lm.tokenizer.spans()
        self.followed = watch is not None or request.stop != Stop()
        n = request.max_new_tokens
        k = lm.alternatives
        self._entropy, self._logprob, self._processed = np.zeros((3, n), np.float32)
        self._likeliest = np.zeros((n, k), np.int32)
        self._probs = np.zeros((n, k), np.float32)
        self._states: list[np.ndarray] = []
        self._pieces: list[str] = []
        self._received = np.zeros(n, np.float32)
        # what each row pays to the tokens, the mean over heads
        self._among = np.zeros((n + 1, n), np.float32)
        self._attention: np.ndarray | None = None

    @property
    def complete(self) -> bool:
        """Whether it has ended and the row of its last token is there."""
        return self.error is not None or (
            bool(self.stopped) and (self.blind or self.forwards > len(self.ids))
        )

    def biases(self, t: int) -> Iterator[tuple[list[int], float]]:
        """What is added to the logits of token t: ids, and a value for each of them."""
        for bias in self.request.bias:
            if bias.first <= t and (bias.stop is None or t < bias.stop):
                yield self.lm.tokenizer.openings(bias.opening), bias.value

    def choose(self, scores: Tensor) -> Any:
        """The next token as it is forced, or drawn from scores (V,); None: the likeliest."""
        sampled = None
        # also before a forced token, which then changes no later draw
        if self.generator is not None:
            probs = scores.softmax(-1).nan_to_num(1.0)
            sampled = torch.multinomial(probs, 1, generator=self.generator)
        forced = self.request.prefix[len(self.ids) :]
        return forced[0] if forced else sampled

    def add_row(self, mean: np.ndarray, heads: np.ndarray | None = None) -> None:
        """Add the next row: its mean over the heads (keys,), and all ``heads`` (h, keys), which are
        kept where the request asks for attention.

        The last key is the query itself; with a sliding window the first ones are missing.
        """
        row = self.rows
        if row > len(self.ids):
            return
        self.rows += 1
        paid = mean[max(0, len(mean) - row) :]  # to the tokens, the last of them itself
        first = row - len(paid)
        self._among[row, first:row] = paid
        seen = self._received[first : max(0, row - 1)]  # Eq. 2: only tokens before it
        np.maximum(seen, paid[:-1], out=seen)
        if heads is not None and self.request.attention:
            self._keep_heads(row, heads)

    def _keep_heads(self, row: int, heads: np.ndarray) -> None:
        p = len(self.prompt_ids)
        n = self.request.max_new_tokens
        if self._attention is None:
            self._attention = np.zeros((len(heads), n + 1, p + n), np.float16)
        end = p + row
        self._attention[:, row, end - heads.shape[1] : end] = heads

    def add_token(
        self, token: int, measured: Sequence[Any], processed: float = np.nan, state: Any = None
    ) -> None:
        """Add the next token and what was measured on its distribution; ask ``Stop``, and tell
        ``watch``.

        ``measured`` is its part of ``measure_logits``; ``processed`` is the entropy after warpers,
        NaN where nothing changed the distribution; ``state`` (d,). Raises ``ModelError`` for a
        distribution that is not finite.
        """
        t = len(self.ids)
        if np.isnan(measured[0 if self.lm.has_entropy else 1]):
            raise _not_finite(self.lm, len(self.prompt_ids) + t)
        self._entropy[t], self._logprob[t], self._likeliest[t], self._probs[t] = measured
        self._processed[t] = processed
        if state is not None:
            self._states.append(state)
        self.ids.append(token)
        reason = None
        if self.followed:
            self.spans.push(token)
            reason = self.request.stop.reached(self.so_far(measured=self.request.stop.measured))
        if token in self.lm.eos:
            self.stopped = "eos"
        else:
            self.stopped = reason or "length" * (len(self.ids) == self.request.max_new_tokens)
        if self.watch is not None:
            self.watch(self.so_far())

    def so_far(self, *, measured: bool = True) -> Draft:
        """The draft so far; its ids and text alone where ``measured`` is False."""
        if not measured:
            return Draft(np.array(self.ids, np.int32), self.spans.text, ended=False)
        self._pieces += self.lm.tokenizer.tokens(self.ids[len(self._pieces) :])
        return self._draft(
            self.spans.text, self.spans.provisional(), pieces=tuple(self._pieces), ended=False
        )

    def finish(self) -> Draft:
        """What was written. Raises what went wrong."""
        if self.error is not None:
            raise self.error
        n = len(self.ids)
        tokenizer = self.lm.tokenizer
        processed = self._processed[:n]
        draft = self._draft(
            *self.spans.all(self.ids),
            pieces=tuple(tokenizer.tokens(self.ids)),
            raw_text=tokenizer.decode(self.ids, special=True),
            alternative_tokens=tuple(
                tuple(map(tokenizer.show, row)) for row in self._likeliest[:n].tolist()
            ),
            stopped=self.stopped,
            seconds=time.perf_counter() - self.began,
            reused=self.reused,
        )
        if not np.isnan(processed).all():
            draft.entropy_processed = np.where(np.isnan(processed), draft.entropy, processed)
        if draft.rows is not None:
            draft.rows = draft.rows.copy()  # not a view of the whole buffer
        if self.request.among and not self.blind:
            draft.among = self._among[: n + 1, :n][np.tril_indices(n + 1, -1, n)]
        return draft

    def _draft(self, text: str, spans: list[tuple[int, int]], **rest: Any) -> Draft:
        n = len(self.ids)
        rows = self._attention
        return Draft(
            ids=np.array(self.ids, np.int32),
            text=text,
            offsets=np.array(spans, np.int32).reshape(-1, 2),
            prompt_ids=np.array(self.prompt_ids, np.int32),
            prompt_offsets=self.prompt_offsets,
            entropy=self._entropy[:n],
            logprob=self._logprob[:n],
            alternative_ids=self._likeliest[:n],
            alternative_probs=self._probs[:n],
            received=np.full(n, np.nan, np.float32) if self.blind else self._received[:n].copy(),
            rows=None if rows is None else rows[:, : self.rows, : len(self.prompt_ids) + n],
            states=np.stack(self._states) if self._states else None,
            **rest,
        )


def refuse_not_finite(lm: Any, values: Tensor, tokens: int) -> None:
    """Raise ``ModelError`` for what a model computed of so many tokens where it is no number."""
    if bool(values.isnan().any()):
        raise _not_finite(lm, tokens)


def _not_finite(lm: Any, tokens: int) -> ModelError:
    return ModelError(
        f"the logits of {lm.name} are not finite (NaN) after {tokens} tokens; float16 may overflow:"
        f" {OTHER_TYPE}"
    )


class Measured(NamedTuple):
    """What is read off the distributions of n tokens."""

    entropy: Tensor  # (n,) nats
    logprob: Tensor  # (n,) nats
    likeliest: Tensor  # (n, k) ids, best first
    probs: Tensor  # (n, k)


def measure_logits(logits: Tensor, tokens: Tensor, k: int) -> Measured:
    """Entropy, log-probability and the k likeliest, of raw logits (n, V) and the tokens (n,) after
    them.

    One exponential of the vocabulary serves all: with the sum Z of w = exp(logit - highest), p is
    w / Z, and the entropy log Z - sum(w log w) / Z.
    """
    logits = logits.float()
    highest = logits.amax(-1, keepdim=True)  # (n, 1)
    least = torch.finfo(torch.float32).min
    log_w = (logits - highest).clamp_(min=least)  # (n, V)
    w = log_w.exp()  # (n, V)
    total = w.sum(-1, keepdim=True)  # (n, 1)
    log_total = total.log()  # (n, 1)
    entropy = log_total - torch.linalg.vecdot(w, log_w)[:, None] / total  # (n, 1)
    chosen = logits.gather(1, tokens[:, None])  # (n, 1)
    logprob = chosen - highest - log_total  # (n, 1)
    best, likeliest = _find_likeliest(w, k)
    return Measured(entropy[:, 0], logprob[:, 0], likeliest, best / total)


def _find_likeliest(w: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of w (n, V), best first, and their ids; (n, k) each.

    They lie in the k blocks with the highest maxima; finding those first takes a fifth of the time.
    """
    size = math.gcd(w.shape[-1], _BLOCK)
    blocks = w.view(len(w), -1, size)  # (n, V / size, size)
    count = min(k, blocks.shape[1])
    highest = blocks.amax(-1)  # (n, V / size)
    chosen = highest.topk(count).indices  # (n, k)
    index = chosen[..., None]  # (n, k, 1)
    index = index.expand(-1, -1, size)  # (n, k, size)
    candidates = blocks.gather(1, index)  # (n, k, size)
    candidates = candidates.flatten(1)  # (n, k * size)
    best, place = candidates.topk(k)  # (n, k) each
    block = chosen.gather(1, place // size)  # (n, k)
    within = place % size  # (n, k)
    return best, block * size + within


def find_ends(prompt: Prompt, offsets: np.ndarray, parts: Sequence[str] = PARTS) -> tuple[int, ...]:
    """How many tokens of a prompt stand before the end of each of its ``parts``, ascending; never
    all of them.

    ``offsets`` (p, 2) are the character spans of its tokens.
    """
    behind = [prompt.spans[name][1] for name in parts if name in prompt.spans]
    ends = {int((offsets[:, 1] > end).argmax()) for end in behind if end}  # 0: none is behind
    return tuple(sorted(end for end in ends if 0 < end < len(offsets)))


def is_shareable(config: Any) -> bool:
    """Whether a text can go on from a copy of a model's cache; states that are overwritten in
    place forbid it.
    """
    return all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer)
        for layer in DynamicCache(config=config).layers
    )


def batch_obstacle(config: Any) -> str:
    """Why texts of a model cannot be written side by side; empty where they can."""
    layers = DynamicCache(config=config).layers
    if any(getattr(layer, "is_sliding", False) for layer in layers):
        return "its key-value cache has a sliding window"
    for layer in layers:
        if type(layer) is not DynamicLayer:
            return f"its key-value cache has a {type(layer).__name__}"
    return ""


def open_cache(config: Any, beside: Sequence[DynamicCache | None]) -> DynamicCache | None:
    """A new cache with those of several texts as its rows, padded on the left so that all end at
    the same column.

    The given caches are not changed. None where the model makes its own.
    """
    if batch_obstacle(config):
        return copy.deepcopy(beside[0])
    cache = DynamicCache(config=config)
    longest = max(beside, key=count_cached)
    layers = [list_layers(text) for text in beside]
    for i, (keys, values) in list_layers(longest).items():
        empty = keys[:, :, :0], values[:, :, :0]
        rows = [of_text.get(i, empty) for of_text in layers]
        width = keys.shape[2]
        all_keys, all_values = zip(*rows, strict=True)
        cache.update(_pad_left(all_keys, width), _pad_left(all_values, width), i)
    return cache


def _pad_left(states: Sequence[Tensor], width: int) -> Tensor:
    """States (1, H_kv, n, d) of several texts as rows of that width."""
    pad = torch.nn.functional.pad
    return torch.cat([pad(one, (0, 0, width - one.shape[2], 0)) for one in states])


def split_cache(cache: DynamicCache, row: int, columns: Tensor, config: Any) -> DynamicCache:
    """The cache of the text that stands in some columns of one row; a copy."""
    own = DynamicCache(config=config)
    for i, states in list_layers(cache).items():
        keys, values = (s[row : row + 1].index_select(2, columns.to(s.device)) for s in states)
        own.update(keys, values, i)
    return own


def count_cached(cache: DynamicCache | None) -> int:
    """How many tokens a cache has."""
    return 0 if cache is None else int(cache.get_seq_length())


def list_layers(cache: Any) -> dict[int, tuple[Tensor, Tensor]]:
    """Keys and values (B, H_kv, n, d) of the layers that have their own; none without a cache."""
    layers = {}
    for i, layer in enumerate(cache.layers if cache else ()):
        if layer.keys is not None:
            layers[i] = layer.keys, layer.values
    return layers


def free_memory(device: torch.device) -> int:
    """Bytes that a device has free, with what torch holds and does not use; on a CPU those Linux
    calls available.

    A container has no more than its own limit leaves, whatever its machine has.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + unused)
    if not _MEMORY.is_file():
        return _UNKNOWN
    lines = dict(line.split(":") for line in _MEMORY.read_text(encoding="utf-8").splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    limit = _GROUP / "memory.max"
    used = _GROUP / "memory.current"
    if limit.is_file() and (most := limit.read_text(encoding="utf-8").strip()) != "max":
        available = min(available, max(int(most) - int(used.read_text(encoding="utf-8")), 0))
    return available


class Prefixes:
    """The caches of beginnings of prompts; the least recently used is dropped first.

    They take at most ``limit`` bytes; without one, half of what is free on ``device`` and of what
    they have. The latest stays even if it alone takes more. Hold the model's lock while using it.
    """

    def __init__(self, limit: int | None = None, device: Any = "cpu") -> None:
        self.limit = limit
        self.device = torch.device(device)
        # least recently used first
        self._caches = OrderedDict[Ids, DynamicCache]()

    def __len__(self) -> int:
        return len(self._caches)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        total = 0
        for cache in self._caches.values():
            for keys, values in list_layers(cache).values():
                total += keys.nbytes + values.nbytes
        return total

    def find(self, ids: Sequence[int], ends: Sequence[int]) -> tuple[int, DynamicCache | None]:
        """Length and cache of the longest kept beginning of a prompt that ends at one of
        ``ends``; else 0 and None.
        """
        kept = [end for end in ends if tuple(ids[:end]) in self._caches]
        for end in reversed(kept):  # the shortest is dropped last: the others begin with it
            self._caches.move_to_end(tuple(ids[:end]))
        if not kept:
            return 0, None
        return kept[-1], self._caches[tuple(ids[: kept[-1]])]

    def keep(self, ids: Sequence[int], cache: DynamicCache) -> None:
        """Keep the cache of these ids."""
        self._caches[tuple(ids)] = cache
        self._caches.move_to_end(tuple(ids))
        size = self.nbytes
        limit = (free_memory(self.device) + size) // 2 if self.limit is None else self.limit
        while len(self) > 1 and self.nbytes > limit:
            self._caches.popitem(last=False)

    def clear(self) -> None:
        """Drop everything, so that the next text is read from its beginning."""
        self._caches.clear()
