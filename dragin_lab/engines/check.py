"""Self-checks of a model when it is opened.

A short text is written as drafts are, with every token forced. Its numbers are compared with one
forward pass over the whole text, and the attention of that pass with the model's own eager
attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragin_lab.core.episode import Write
from dragin_lab.engines.generating import generate_text, read_prompts, write_texts
from dragin_lab.engines.identity import is_quantized
from dragin_lab.engines.layers import attention_layers, layer_kinds
from dragin_lab.engines.tap import restoring
from dragin_lab.engines.writing import Writing, refuse_not_finite
from dragin_lab.errors import ModelError
from dragin_lab.trace.draft import count_common
from dragin_lab.trace.trace import Draft, Prompt
from dragin_lab.warning import warn

#: Texts whose ids a model that transformers does not run must read as the tokenizer does.
TEXTS = ("Who directed the film Jaws?", "Zoë paid 1,250 € in Łódź.", " two  spaces,\na line")
_TOKENS = 13  # of the text
_PROMPT = 10  # of them, of its prompt
_PARTS = {"exemplars": (0, 3), "passages": (3, 7)}  # of the prompt, where it is read in parts
_PADDED = 2  # tokens that the second text of the batch is shorter
#: What limits how far a layer looks back.
_WINDOWS = ("sliding_window", "index_topk", "attention_chunk_size")
_NEAR = 64  # tokens of the largest window that the text goes beyond; larger ones are narrowed
_BEYOND = 5  # tokens that it goes beyond them
_NARROW = 8  # tokens that larger ones are narrowed to
_GREEDY = 4  # tokens whose ids are compared
#: What a failed check costs where the model can be used all the same.
WHOLE = "prompts are read whole"
ALONE = "drafts are written one at a time"


@dataclass(frozen=True)
class Check:
    """One check: ``value`` was measured and must not exceed ``limit``.

    ``costs`` says what is given up where it fails; the model itself where it is empty.
    """

    name: str
    value: float
    limit: float
    note: str = ""
    costs: str = ""

    @property
    def passed(self) -> bool:
        """NaN does not pass."""
        return self.value <= self.limit

    def __str__(self) -> str:
        sign = "ok" if self.passed else "FAILED"
        note = f" - {self.note}" if self.note else ""
        return f"{self.name}: {sign} ({self.value:.2g}, limit {self.limit:.2g}){note}"


class Limits(NamedTuple):
    """How far two ways to compute the same may differ: logits, relative to the largest; attention
    rows by the eager function; what decoding gives, in nats and probabilities; and its rows.
    """

    logits: float
    eager: float
    decoded: float
    rows: float


#: By the type that computes. A few rounding steps in half precision, as the eager attention rounds
#: and a batch may take other kernels; what is quantized as it is read depends on what stands beside
#: it.
FLOAT32 = Limits(1e-4, 1e-4, 1e-3, 1e-3)
HALF = Limits(5e-2, 0.2, 0.5, 4e-2)
QUANTIZED = Limits(5e-2, 0.5, 1.0, 0.5)


def run_checks(lm: Any) -> list[Check]:
    """Compare a text written alone, after a prompt read in parts, and side by side with one pass
    over it. It takes a few dozen forwards.
    """
    count = lm.model.get_input_embeddings().num_embeddings
    usable = (i for i in ((7 * n + 11) % count for n in range(count)) if i not in lm.eos)
    ids = [*islice(usable, _TOKENS)]
    limits = find_limits(lm)
    among = FLOAT32 if limits is FLOAT32 else HALF  # what is above it costs something, not all
    near = [size for size in _list_windows(lm.model) if size <= _NEAR]
    longer = (ids * _NEAR)[: max([len(ids), *(size + _BEYOND for size in near)])]
    with lm.in_use():
        checks = _check_capture(lm, longer, limits)
        checks.append(_check_ids(lm, longer, limits))
        if len(near) < len(_list_windows(lm.model)):
            with _narrowed(lm.model):
                far = [*_check_capture(lm, ids, limits), _check_ids(lm, ids, limits)]
            checks += [replace(check, name=f"{check.name}, narrowed") for check in far]
        checks += _check_texts(lm, "decoding", [_force_text(lm, ids)], "", limits)
        if lm.parts:
            for parts in (_PARTS, _PARTS):  # read, and taken from what is kept
                text = _force_text(lm, ids, parts)
                read_prompts(lm, [text])
            checks += _check_texts(lm, "a prompt read in parts", [text], WHOLE, among)
            lm.prefixes.clear()
        if not lm.no_batch:
            texts = [_force_text(lm, ids, _PARTS), _force_text(lm, ids[_PADDED:])]
            read_prompts(lm, texts, whole=True)
            lm.prefixes.clear()
            checks += _check_texts(lm, "a left-padded batch", texts, ALONE, among)
    if not lm.tokenizer.marker:
        checks.append(
            Check(
                "space marker",
                0.0,
                0.0,
                "this vocabulary marks no spaces; words come from the text",
            )
        )
    return checks


def find_limits(lm: Any) -> Limits:
    """The limits of the type that a model computes in, by its weights and by autocast."""
    packed = any(hasattr(module, "_packed_params") for module in lm.model.modules())
    if packed or any(map(is_quantized, lm.model.parameters())):
        return QUANTIZED
    sharp = lm.model.dtype == torch.float32 and not torch.is_autocast_enabled(lm.device.type)
    return FLOAT32 if sharp else HALF


def _check_texts(
    lm: Any, what: str, texts: Sequence[Writing], costs: str, limits: Limits
) -> list[Check]:
    """Whether texts are written as one pass over each measures them."""
    write_texts(lm, texts, enough=len(texts))
    apart = []
    off = []
    for text in texts:
        one = lm.measure_text(text.prompt_ids, text.prompt_offsets, text.ids, attention=True)
        written = text.finish()
        apart.append(_distance(written, one, "entropy", "logprob", "alternative_probs"))
        if lm.has_attention:
            off.append(_distance(written, one, "rows"))
    title = f"{what} gives the probabilities of one pass"
    checks = [Check(title, max(apart), limits.decoded, costs=costs)]
    if off:
        title = f"{what} gives the rows of one pass"
        checks.append(Check(title, max(off), limits.rows, costs=costs))
    return checks


def apply_checks(lm: Any, checks: Sequence[Check]) -> None:
    """Refuse a model that failed a check, or warn and switch off what that check costs."""
    failed = [c for c in checks if not c.passed]
    if fatal := [c for c in failed if not c.costs]:
        raise ModelError("; ".join(map(str, fatal)) + ". Load with check=False to use it anyway")
    for c in failed:
        warn(f"{lm.name}: {c}; {c.costs}")
    costs = {c.costs for c in failed}
    if WHOLE in costs:
        lm.parts = ()
    if ALONE in costs:
        lm.no_batch = "side by side this model gives other numbers than alone"


def _force_text(lm: Any, ids: list[int], parts: Any = None) -> Writing:
    """A draft that is forced to write the last ids after the others; its prompt has one
    character a token.
    """
    n = _TOKENS - _PROMPT
    p = len(ids) - n
    request = Write(Prompt("x" * p, parts or {}), n, attention=True, prefix=tuple(ids[p:]))
    places = np.arange(p, dtype=np.int32)
    return Writing(lm, request, prompt=(ids[:p], np.stack([places, places + 1], 1)))


def _distance(a: Draft, b: Draft, *names: str) -> float:
    """The largest difference of some arrays; NaN where one has it."""
    return max(
        float(np.abs(np.float64(getattr(a, n)) - np.float64(getattr(b, n))).max()) for n in names
    )


def _check_capture(lm: Any, ids: list[int], limits: Limits) -> list[Check]:
    """Whether one pass with capture gives what it gives without."""
    tap = lm.tap
    inputs = {"input_ids": torch.tensor([ids], device=lm.device), "use_cache": False}
    with tap.listen(len(ids)):
        logits = lm.model(**inputs).logits[0]
        rows = tap.pop_rows()
    refuse_not_finite(lm, logits, len(ids))
    apart = _logit_distance(logits, lm.model(**inputs).logits[0])
    alike = Check("logits equal with and without capture", apart, limits.logits)
    if rows is None:
        return [alike]
    rows = rows[0]  # (h, n, n)
    own = tap.pick(_read_maps(lm, inputs))[0].float()  # (h, n, n)
    sinks = hasattr(getattr(tap, "module", None), "sinks")
    off = (rows.sum(-1) - 1).clamp_min(0) if sinks else (rows.sum(-1) - 1).abs()  # (h, n)
    note = "at most 1: this model has sinks" if sinks else ""
    later = float(rows.triu(1).max())
    eager = float((rows - own).abs().max())
    return [
        Check("attention rows sum to 1", float(off.max()), 1e-3, note),
        Check("no attention to later tokens", later, 0.0, "the model must be causal"),
        Check("attention rows are the eager ones", eager, limits.eager),
        alike,
    ]


def _check_ids(lm: Any, ids: list[int], limits: Limits) -> Check:
    """Whether a few tokens after a text are the same with capture as without; where they part,
    the difference is how much less likely one is, relative to the largest logit.
    """
    texts = []
    for listening in (lm.tap.listen(), nullcontext()):
        with listening:
            text = generate_text(lm.model, [ids], lm.device, None, _GREEDY)
        texts.append(text[0].tolist())
    tapped, own = texts
    n = count_common(own, tapped)
    apart = 0.0
    if n < len(own):
        read = torch.tensor([own[:n]], device=lm.device)
        logits = lm.model(input_ids=read, use_cache=False).logits[0, -1].float()
        apart = float((logits[own[n]] - logits[tapped[n]]).abs() / logits.abs().max())
    return Check("ids equal with and without capture", apart, limits.logits)


def _list_windows(model: Any) -> list[int]:
    """How many tokens layers look back at, where that is limited."""
    config = model.config.get_text_config()
    sizes = [getattr(config, name, None) for name in _WINDOWS]
    return [size for size in sizes if isinstance(size, int) and size > 0]


@contextmanager
def _narrowed(model: Any) -> Iterator[None]:
    """Within the block, layers look back at a few tokens alone, so that a short text goes beyond:
    a long one would take long to read.
    """
    holders: list[Any] = [*model.modules()]
    holders += {id(one.config): one.config for one in holders if hasattr(one, "config")}.values()
    before = [
        (holder, name, vars(holder)[name])
        for holder in holders
        for name in _WINDOWS
        if isinstance(vars(holder).get(name), int) and vars(holder)[name] > _NARROW
    ]

    def restore() -> None:
        for holder, name, size in before:
            setattr(holder, name, size)

    with restoring(restore):
        for holder, name, _ in before:
            setattr(holder, name, _NARROW)
        yield


def _read_maps(lm: Any, inputs: dict[str, Any]) -> Tensor:
    """The map (B, H, n, n) of the tapped layer by the model file's own eager attention."""
    configs = {id(m.config): m.config for m in lm.model.modules() if hasattr(m, "config")}.values()
    before = [(config, config._attn_implementation) for config in configs]
    try:
        for config, _ in before:
            config._attn_implementation = "eager"
        given = lm.model(output_attentions=True, **inputs).attentions or ()
    finally:
        for config, chosen in before:
            config._attn_implementation = chosen
    maps = [one for one in given if one is not None]
    having = list(attention_layers(lm.model)[0])
    places = {len(layer_kinds(lm.model.config)): lm.layer, len(having): having.index(lm.layer)}
    if len(maps) not in places:
        raise ModelError(
            f"{type(lm.model).__name__} does not return the attentions of its {len(having)} layers,"
            " so what is captured cannot be checked; load it with check=False to use it anyway"
        )
    return maps[places[len(maps)]]


def _logit_distance(a: Tensor, b: Tensor) -> float:
    """Largest difference of logits, relative to the largest of them."""
    finite = torch.isfinite(a) & torch.isfinite(b)
    a = a.float()[finite]
    b = b.float()[finite]
    return float((a - b).abs().max() / b.abs().max().clamp_min(1.0))
