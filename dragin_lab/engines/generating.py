"""Drafts through transformers' own ``generate``, with its logits and attention rows recorded and
its tokens chosen.

``generate`` writes one draft, or several side by side, padded on the left. After each forward the
raw logits and the tapped layer's rows are recorded, and a ``LogitsProcessor`` chooses the tokens. A
``StoppingCriteria`` hands each draft its token, and ends ``generate`` when the drafts have ended
and the rows of their last tokens are recorded. The user's model gets no hook: ``generate`` runs on
a view of it.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, repeat, zip_longest
from typing import Any

import numpy as np
import torch
import transformers as tf
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, StoppingCriteria

from dragin_lab.core.scores import entropy
from dragin_lab.engines.tap import exactly
from dragin_lab.engines.writing import (
    Ids,
    Writing,
    count_cached,
    find_ends,
    measure_logits,
    open_cache,
    refuse_not_finite,
    split_cache,
)
from dragin_lab.trace.draft import count_common

#: Settings of a generation config that are fixed here; ``_TokenChooser`` samples.
_FIXED = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "use_cache": True,
    "cache_implementation": None,
    "max_length": None,
    "max_time": None,
    "stop_strings": None,
    "min_length": None,
    "min_new_tokens": None,
    "eos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "pad_token_id": 0,
    "prompt_lookup_num_tokens": None,
    "guidance_scale": None,
    "prefill_chunk_size": None,
    "token_healing": False,
    "return_dict_in_generate": False,
    "output_scores": False,
    "output_logits": False,
    "output_attentions": False,
    "output_hidden_states": False,
    "disable_compile": True,
    "penalty_alpha": None,
    "dola_layers": None,
}
#: By setting, with the value that switches it off.
_WARPERS: dict[str, tuple[Any, float | None]] = {
    "temperature": (tf.TemperatureLogitsWarper, 1.0),
    "top_h": (tf.TopHLogitsWarper, None),
    "top_k": (tf.TopKLogitsWarper, 0),
    "top_p": (tf.TopPLogitsWarper, 1.0),
    "min_p": (tf.MinPLogitsWarper, None),
    "typical_p": (tf.TypicalLogitsWarper, 1.0),
    "epsilon_cutoff": (tf.EpsilonLogitsWarper, 0.0),
    "eta_cutoff": (tf.EtaLogitsWarper, 0.0),
}
_FIXED |= dict.fromkeys(_WARPERS)
_TOP_K = 50  # ``generate``'s own default
#: Tokens of padding that cost less than another forward, which reads all weights, by the device.
_PADDING = {"cpu": 16, "cuda": 256}
#: Settings that bring no processor of ``generate``'s own, beside those above.
_QUIET = {
    "bos_token_id",
    "decoder_start_token_id",
    "max_new_tokens",
    "transformers_version",
    "_from_model_config",
}


def list_warpers(config: Any) -> list[LogitsProcessor]:
    """The warpers that a generation config asks for, in ``generate``'s order."""
    warpers = []
    for name, (kind, off) in _WARPERS.items():
        value = getattr(config, name, None)
        if name == "top_k" and value is None:
            value = _TOP_K
        if value not in (None, off):
            warpers.append(kind(value))
    return warpers


class _TokenChooser(LogitsProcessor):
    """Chooses each draft's next token: the forced one, else by its bias, the config's warpers
    and its own draws.
    """

    def __init__(self, lm: Any, beside: Sequence[Writing], recorder: _Recorder) -> None:
        self.lm = lm
        self.beside = beside
        self.recorder = recorder
        config = lm.model.generation_config
        self.warpers = list_warpers(config) if lm.sample else []
        self.least = config.min_new_tokens or 0
        self.plain = not (
            lm.sample or self.least or any(one.request.bias or one.request.prefix for one in beside)
        )
        # Looked up before the draft, as comparing scores would wait for the device at each token.
        self.processes = bool(self.warpers or config.to_diff_dict().keys() - _FIXED.keys() - _QUIET)
        # (B,) entropies after processors, of this step; NaN where they are raw
        self.processed: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.plain and not self.processes:
            return scores
        given = scores
        scores = scores.clone()
        for i, draft in enumerate(self.beside):
            for ids, value in draft.biases(len(draft.ids)):
                scores[i, ids] += value
            if len(draft.ids) < self.least:
                scores[i, list(self.lm.eos)] = -torch.inf
        for warper in self.warpers:
            scores = warper(input_ids, scores)
        if self.processes:
            logs = scores.log_softmax(-1)
            self.processed = entropy(logs.exp(), logs)
            if not self.warpers:
                raw = (given == self.recorder.logits.to(given)).all(-1)  # (B,)
                self.processed.masked_fill_(raw, torch.nan)
        for i, draft in enumerate(self.beside):
            token = draft.choose(scores[i])
            if token is not None:
                scores[i] = -torch.inf
                scores[i, token] = 0.0
        return scores


class _Ended(Tensor):
    """Whether all drafts have ended, also known here: ``generate``'s own question for it then
    waits for no device.
    """

    known: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = any(one.known for one in args if isinstance(one, _Ended))
        if func is Tensor.__bool__:
            return known
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, _Ended):
            result.known = known
        return result


@dataclass(eq=False)
class _Recorder(StoppingCriteria):
    """Records each forward, hands each draft its row and its token, and says which drafts have
    ended.

    ``starts`` are the first columns of the texts. ``generate`` ends once ``enough`` drafts have
    ended; the others can go on in another call.
    """

    lm: Any
    beside: Sequence[Writing]
    starts: Sequence[int]
    enough: int
    chooser: _TokenChooser = field(init=False)
    logits: Tensor = field(init=False)  # (B, V) of the latest forward
    rows: Tensor | None = None  # (B, h, keys) of it
    states: Tensor | None = None  # (B, d)

    def record(self, output: Any) -> None:
        """Record the logits, rows and states of a forward."""
        self.logits = output.logits[:, -1].clone()  # no view that keeps all of them
        rows = self.lm.tap.pop_rows()
        self.rows = None if rows is None else rows[:, :, -1]
        state = self.beside[0].state
        if state is not None:
            self.states = output.hidden_states[state][:, -1]
            output.hidden_states = None

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        latest = input_ids[:, -1]  # (B,)
        with exactly(input_ids.device):
            sent = self._fetch(latest.to(self.logits.device))
            for i, draft in enumerate(self.beside):
                if not draft.complete:
                    part = [None if array is None else array[i] for array in sent]
                    self._hand_over(draft, self.starts[i], part)
        ended: Any = torch.zeros_like(latest, dtype=torch.bool).as_subclass(_Ended)
        ended.known = sum(draft.complete for draft in self.beside) >= self.enough
        return ended

    def _fetch(self, tokens: Tensor) -> list[Any]:
        """What was measured where each draft chose its token (B,), as ``_hand_over`` takes it."""
        rows = self.rows  # (B, h, keys)
        measured = measure_logits(self.logits, tokens, self.lm.alternatives)
        heads = rows if any(draft.request.attention for draft in self.beside) else None
        means = None if rows is None else rows.mean(1)  # (B, keys)
        return fetch([tokens, *measured, self.chooser.processed, self.states, means], heads)

    def _hand_over(self, draft: Writing, start: int, sent: Sequence[Any]) -> None:
        """Give a draft its part of what was measured; an error ends this draft alone."""
        token, *values, processed, state, mean, heads = sent
        draft.forwards += 1
        if mean is not None:
            heads = None if heads is None else heads[:, start:]
            draft.add_row(mean[start:], heads)
        if not draft.stopped:
            processed = np.nan if processed is None else processed
            try:
                draft.add_token(int(token), values, processed, state)
            except Exception as error:  # noqa: BLE001 - ends this draft alone
                draft.error = error


def fetch(parts: Sequence[Tensor | None], heads: Tensor | None) -> list[Any]:
    """Parts as float32 arrays and ``heads`` as float16, in one transfer, since each waits for the
    device.

    Ids are exact below 2**24.
    """
    floats = [part.float().flatten() for part in parts if part is not None]
    device = floats[0].device  # the tapped layer may lie on another one
    bits = torch.cat([part.to(device) for part in floats]).view(torch.uint8)
    if heads is not None:
        halves = torch.cat([heads.half().to(device).flatten()])
        bits = torch.cat([bits, halves.view(torch.uint8)])
    sent = bits.cpu().numpy()
    arrays: list[Any] = []
    place = 0
    for part, kind in [*zip(parts, repeat(np.float32)), (heads, np.float16)]:
        if part is None:
            arrays.append(None)
            continue
        end = place + np.dtype(kind).itemsize * part.numel()
        arrays.append(sent[place:end].view(kind).reshape(part.shape))
        place = end
    return arrays


@cache
def _make_recorded_class(kind: Any) -> Any:
    """A subclass of a model's class that also hands the output of each forward to ``_recorder``."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = kind.__call__(self, *args, **kwargs)
        vars(self)["_recorder"].record(output)
        return output

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def view_model(model: Any, recorder: Any) -> Any:
    """Another object for the same model, with its parameters, modules and hooks, whose forwards are
    recorded.

    A hook on the model itself could be left behind by an interrupt, and would also record other
    callers' forwards.
    """
    kind: Any = type(model)
    view: Any = object.__new__(_make_recorded_class(kind))
    view.__dict__ = vars(model) | {"_recorder": recorder}
    return view


def _name_of_cache(model: Any) -> str:
    """What a model calls its cache: ``past_key_values`` up to transformers 5.23, ``cache``
    since.
    """
    return (
        "cache"
        if "cache" in inspect.signature(type(model).forward).parameters
        else "past_key_values"
    )


def generate_text(
    model: Any, ids: Sequence[Sequence[int]], device: Any, cache: Any, n: int, **options: Any
) -> Tensor:
    """Call ``generate`` for n tokens after ``ids`` (B, T), padded on the left; ``cache`` may
    have their beginning. Returns both (B, T + n).
    """
    config = model.generation_config
    inputs = torch.tensor(ids, device=device)
    asked: dict[str, Any] = {"attention_mask": torch.ones_like(inputs), "max_new_tokens": n}
    asked |= {name: value for name, value in _FIXED.items() if hasattr(config, name)}
    if cache:
        asked[_name_of_cache(model)] = cache
    # The class's method, as ``capture`` replaces the model's own.
    return type(model).generate(model, inputs, **asked | options)


def read_texts(
    lm: Any, texts: Sequence[Sequence[int]], caches: Sequence[DynamicCache | None]
) -> list[DynamicCache]:
    """New caches of some texts, read side by side; ``caches`` have their beginnings, or none,
    and are not changed.
    """
    config = lm.model.config
    cached = list(map(count_cached, caches))
    most_cached = max(cached)
    most_read = max(len(text) - n for text, n in zip(texts, cached, strict=True))
    ids = []
    masks = []
    for text, n in zip(texts, cached, strict=True):
        # 0 0 cached 0 0 read: what is cached ends at one column, and what is read at the last
        read = len(text) - n
        before = [0] * (most_cached - n)
        between = [0] * (most_read - read)
        ids.append([*before, *text[:n], *between, *text[n:]])
        masks.append([*before, *[1] * n, *between, *[1] * read])
    mask = torch.tensor(masks, device=lm.device)  # (B, most_cached + most_read)
    cache = open_cache(config, caches) or DynamicCache(config=config)
    generate_text(lm.model, ids, lm.device, cache, 1, attention_mask=mask)
    if len(texts) == 1:
        return [cache]
    split = []
    for number, row in enumerate(mask):
        columns = row.nonzero()[:, 0]
        split.append(split_cache(cache, number, columns, config))
    return split


def read_prompts(lm: Any, beside: Sequence[Writing], *, whole: bool = False) -> None:
    """Read the parts of prompts that are kept, for all drafts at once; with ``whole``, all but
    each last token too.
    """
    parts = []
    for draft in beside:
        # A part of a rotated prompt would not be rotated.
        rotated = lm.is_rotated(len(draft.prompt_ids))
        prompt = draft.request.prompt
        ends = () if rotated else find_ends(prompt, draft.prompt_offsets, lm.parts)
        parts.append(ends)
        draft.reused, draft.cache = lm.prefixes.find(draft.prompt_ids, ends)
    for row in zip_longest(*parts, fillvalue=0):
        read = read_ends(lm, dict(zip(beside, row, strict=True)))
        for ids, part in read.items():
            lm.prefixes.keep(ids, part)
    if whole:
        last = {draft: len(draft.prompt_ids) - 1 for draft in beside}
        # What is one token longer than the switch is read with its first new one.
        read_ends(lm, {draft: end for draft, end in last.items() if end != lm.rotary_switch})


def read_ends(lm: Any, ends: dict[Writing, int]) -> dict[Ids, DynamicCache]:
    """Read prompts up to some ``ends``, where their caches do not reach so far; the new caches, by
    their ids.

    What several drafts begin with is read once, and texts of about one length side by side; a
    rotated one alone.
    """
    drafts_of = defaultdict[Ids, list[Writing]](list)
    new = dict[Ids, int]()  # how many tokens of each text are read
    for draft, end in ends.items():
        cached = count_cached(draft.cache)
        if end > cached:
            ids = tuple(draft.prompt_ids[:end])
            drafts_of[ids].append(draft)
            new.setdefault(ids, end - cached)
    padding = _PADDING.get(lm.device.type, _PADDING["cuda"])

    def kind(ids: Ids) -> Any:
        return ids if lm.is_rotated(len(ids)) else new[ids] // padding

    caches: dict[Ids, DynamicCache] = {}
    for _, alike in groupby(sorted(new, key=new.__getitem__), kind):
        texts = list(alike)
        begun = [drafts_of[ids][0].cache for ids in texts]
        caches |= zip(texts, read_texts(lm, texts, begun), strict=True)
    for ids, drafts in drafts_of.items():
        for draft in drafts:
            draft.cache = caches[ids]
        for draft in drafts[1:]:
            draft.reused = len(ids)
    return caches


def write_texts(lm: Any, beside: Sequence[Writing], enough: int = 1) -> None:
    """Write drafts side by side until ``enough`` of them are complete; the others keep a ``cache``
    to go on from.

    The ``cache`` of a single draft may lack any number of tokens at the end of its text. Of several
    drafts each lacks exactly the last token, so that all go on from the same column.
    """
    config = lm.model.config
    texts = [[*draft.prompt_ids, *draft.ids] for draft in beside]
    longest = max(map(len, texts))
    starts = [longest - len(text) for text in texts]
    # Padding repeats the text's first token, so that a penalty for repetition sees no other token.
    ids = [text[:1] * start + text for start, text in zip(starts, texts, strict=True)]
    mask = [[0] * start + [1] * (longest - start) for start in starts]
    left = max(draft.request.max_new_tokens - len(draft.ids) for draft in beside)
    cache = open_cache(config, [draft.cache for draft in beside]) if lm.shareable else None
    recorder = _Recorder(lm, beside, starts, enough)
    recorder.chooser = _TokenChooser(lm, beside, recorder)
    options = {
        "attention_mask": torch.tensor(mask, device=lm.device),
        "logits_processor": [recorder.chooser],
        "stopping_criteria": [recorder],
    }
    if beside[0].state is not None:
        options |= {"output_hidden_states": True, "return_dict_in_generate": True}
    view = view_model(lm.model, recorder)
    with lm.tap.listen():
        generate_text(view, ids, lm.device, cache, left + 1, **options)
    for i, (draft, start) in enumerate(zip(beside, starts, strict=True)):
        draft.cache = None
        if cache is not None and not draft.complete:
            columns = torch.arange(start, cache.get_seq_length())
            draft.cache = split_cache(cache, i, columns, config)


#: Tokens from which on it pays to read what several prompts begin with by itself.
_WORTH = 8


def score_texts(
    lm: Any, prompts: Sequence[list[int]], ends: Sequence[int] | None, given: list[int]
) -> np.ndarray:
    """Log-probabilities (m, n) float32 of ids ``given`` (n) after each of m prompts, one forward
    for each.

    What several of them begin with is read once: prompts are a tree of beginnings, whose root is
    what is kept up to one of their ``ends``; each is read whole where those are None. Side by side
    they would be padded to the longest, which takes a processor twice as long.
    """
    if ends is None:
        return np.stack([_score_after(lm, prompt, None, given) for prompt in prompts])
    scored = np.empty((len(prompts), len(given)), np.float32)
    group = list(range(len(prompts)))
    shared = _count_shared(prompts, group)
    kept = lm.prefixes.find(prompts[0], [end for end in ends if end <= shared])
    waiting = [(group, *kept)]
    while waiting:  # prompts of one beginning, and how much of it their cache has
        group, done, cache = waiting.pop()
        first = prompts[group[0]]
        if len(group) == 1:
            scored[group[0]] = _score_after(lm, first[done:], cache, given)
            continue
        shared = _count_shared(prompts, group)
        if shared - done >= _WORTH:
            [cache] = read_texts(lm, [first[:shared]], [cache])
            done = shared
        branches = defaultdict[Ids, list[int]](list)
        for i in group:
            ends_here = len(prompts[i]) == shared + 1  # the last id is read with the first given
            branch = (-1, i) if ends_here else (prompts[i][shared],)
            branches[branch].append(i)
        waiting += [(alike, done, cache) for alike in branches.values()]
    return scored


def _count_shared(prompts: Sequence[list[int]], group: list[int]) -> int:
    """How many ids some prompts begin with in common, before the last of each."""
    first = prompts[group[0]][:-1]
    return min(count_common(first, prompts[i][:-1]) for i in group)


def _score_after(
    lm: Any, prompt: list[int], cache: DynamicCache | None, given: list[int]
) -> np.ndarray:
    """Log-probabilities (n,) float32 of ids ``given`` (n) after what a cache has and the rest of a
    prompt.
    """
    n = len(given)
    inputs: dict[str, Any] = {"use_cache": cache is not None}
    if "logits_to_keep" in inspect.signature(lm.model.forward).parameters:
        inputs["logits_to_keep"] = n
    if cache is not None:
        inputs[_name_of_cache(lm.model)] = open_cache(lm.model.config, [cache])
    ids = torch.tensor([prompt + given[:-1]], device=lm.device)
    logits = lm.model(ids, **inputs).logits[0, -n:]  # (n, V)
    refuse_not_finite(lm, logits, len(prompt))
    logp = logits.float().log_softmax(-1)
    tokens = torch.tensor(given, device=logits.device)[:, None]  # (n, 1)
    chosen = logp.gather(1, tokens)[:, 0]
    return np.asarray(chosen.cpu().numpy())
