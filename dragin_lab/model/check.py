"""The checks of a model when it is loaded, before anything it shows is believed.

Text is read and written here as drafts are (``decode.read_prompt``, ``decode.feed_tokens``, ``batch.feed_batch``) and
compared with one pass over all of it, whose attention is compared with the model's own eager attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragin_lab.model.batch import feed_batch
from dragin_lab.model.caches import Slots
from dragin_lab.model.decode import feed_tokens, read_prompt
from dragin_lab.model.tap import Pending, Tap
from dragin_lab.model.tapped import TappedModel
from dragin_lab.model.taps import EagerTap, NoTap, read_maps, use_attention

_TOKENS, _PROMPT, _ENDS = 13, 10, (3, 7)  # of the text, of its prompt, and where the parts of that end
_PADDED = 2  # tokens that the second text of the batch is shorter
#: What is given up where a check fails, instead of the model.
WHOLE, ALONE, APART = "prompts are read whole", "drafts are written one at a time", "its text may not be generate's"


@dataclass(frozen=True)
class Check:
    """One check: ``value`` was measured and must not exceed ``limit``.

    ``costs`` says what is given up where it fails; the model itself where it is empty.
    """

    name: str
    passed: bool
    value: float
    limit: float
    note: str = ""
    costs: str = ""

    def __str__(self) -> str:
        sign = "ok" if self.passed else "FAILED"
        return f"{self.name}: {sign} ({self.value:.2g}, limit {self.limit:.2g}){' - ' + self.note if self.note else ''}"


@torch.inference_mode()
def run_checks(lm: TappedModel) -> list[Check]:
    """A few dozen forwards on a few ids.

    - attention rows sum to 1 (to at most 1 where the model has attention sinks), see nothing that comes later, and are
      those of the model's eager attention;
    - logits are the same with and without capture, and, where capture exchanges the attention function, without that;
    - a prompt and the tokens written after it have the logits and rows that one pass over all of them gives; so has a
      prompt read in parts, and so have two texts side by side.

    Limits: rows are float32 whatever the model is, but its eager attention rounds as the model does; logits are
    compared relative to the largest, and in half precision a batch may take other kernels, so the limit there is a few
    of its rounding steps.
    """
    vocabulary = lm.model.get_input_embeddings().num_embeddings
    ids = [(7 * i + 11) % vocabulary for i in range(_TOKENS)]
    sharp = lm.model.dtype == torch.float32
    near, close = (1e-4 if sharp else 5e-2), (1e-4 if sharp else 2e-2)
    checks: list[Check] = []

    def compare(
        what: str, logits: Tensor, rows: Tensor | None, texts: list[tuple[Tensor, Tensor | None]], costs: str
    ) -> None:
        """The last logits (B, c, V) and rows (B, h, c, k) of texts, against those of one pass over each."""
        c = logits.shape[1]
        apart = [_logit_distance(own, one[-c:]) for own, (one, _) in zip(logits, texts, strict=True)]
        checks.append(_make_check(f"{what} gives the logits of one pass", torch.stack(apart), near, costs=costs))
        if rows is not None:
            off = [_row_distance(own, one) for own, (_, one) in zip(rows, texts, strict=True) if one is not None]
            checks.append(_make_check(f"{what} gives the rows of one pass", torch.stack(off), close, costs=costs))

    whole = _one_pass(lm, ids)
    checks += _check_capture(lm, ids, whole, near, sharp)
    compare("decoding", *_write_text(lm, ids, ()), [whole], "")
    if lm.prefixes.shareable:
        read_prompt(lm, ids[:_PROMPT], _ENDS, None)
        compare("a prompt read in parts", *_write_text(lm, ids, _ENDS), [whole], WHOLE)
        lm.forget()
    if not lm.alone:
        compare("a left-padded batch", *_write_beside(lm, ids), [whole, _one_pass(lm, ids[_PADDED:])], ALONE)
    if not lm.tokenizer.marker:
        checks.append(
            Check("space marker", True, 0.0, 0.0, "this vocabulary marks no spaces; words come from the text")
        )
    return checks


def _one_pass(lm: TappedModel, ids: list[int]) -> tuple[Tensor, Tensor | None]:
    """Logits (n, V) and the rows (h, n, n) of one pass with capture."""
    output, rows = lm.tap.forward(len(ids), input_ids=torch.tensor([ids], device=lm.device), use_cache=False)
    return output.logits[0], None if rows is None else rows[0]


def _check_capture(
    lm: TappedModel, ids: list[int], whole: tuple[Tensor, Tensor | None], near: float, sharp: bool
) -> list[Check]:
    """Whether one pass with capture gives what it gives without."""
    tap, (logits, rows) = lm.tap, whole
    inputs = {"input_ids": torch.tensor([ids], device=lm.device), "use_cache": False}
    plain = tap.forward(0, **inputs)[0].logits[0]
    checks = [_make_check("logits equal with and without capture", _logit_distance(logits, plain), near)]
    if isinstance(tap, EagerTap) and tap.chosen != "eager":
        checks.append(check_path(tap, ids))
    if rows is None or isinstance(tap, NoTap):
        return checks
    with use_attention(lm.model, "eager"):
        output = lm.model(output_attentions=True, **inputs)
    own = read_maps(lm.model, output, tap.layer, tap.having)[0].float()
    own = own if tap.heads is None else own[tap.heads]  # (h, n, n)
    sinks = isinstance(tap, Tap) and hasattr(tap.module, "sinks")
    off = (rows.sum(-1) - 1).clamp_min(0) if sinks else (rows.sum(-1) - 1).abs()  # (h, n)
    return [
        _make_check("attention rows sum to 1", off, 1e-3, "at most 1: this model has sinks" if sinks else ""),
        _make_check("no attention to later tokens", rows.triu(1), 0.0, "the model must be causal"),
        _make_check("attention rows are the eager ones", (rows - own).abs(), 1e-4 if sharp else 0.2),
        *checks,
    ]


@torch.inference_mode()
def check_path(tap: EagerTap, ids: Sequence[int] = range(_TOKENS)) -> Check:
    """Whether a model whose attention capture exchanges gives the logits that it gives in ``generate``."""
    inputs = {"input_ids": torch.tensor([list(ids)], device=tap.model.device), "use_cache": False}
    logits = tap.model(**inputs).logits
    with use_attention(tap.model, tap.chosen):
        plain = tap.model(**inputs).logits
    limit = 1e-4 if tap.model.dtype == torch.float32 else 5e-2
    note = f"capture needs eager attention, and generate takes {tap.chosen}"
    return _make_check(
        "eager attention gives the logits of generate", _logit_distance(logits, plain), limit, note, APART
    )


def _write_text(lm: TappedModel, ids: list[int], ends: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
    """Logits (1, c, V) and rows (1, h, c, n) of a prompt's end and the c - 1 tokens written after it."""
    pending = Pending()
    prefix, logits, _ = read_prompt(lm, ids[:_PROMPT], ends, pending)
    steps = [logits, *(feed_tokens(lm, prefix, [token], pending) for token in ids[_PROMPT:])]
    return torch.stack(steps)[None], _join_rows(lm.tap.flush(pending), len(ids))


def _write_beside(lm: TappedModel, ids: list[int]) -> tuple[Tensor, Tensor | None]:
    """Logits (2, c, V) and rows (2, h, c, n) of the last c tokens, fed to both texts side by side."""
    pending, slots = Pending(), Slots(lm.model.config)
    slots.add([read_prompt(lm, prompt, (), None)[0] for prompt in (ids[:_PROMPT], ids[_PADDED:_PROMPT])])
    fed = torch.tensor(ids[_PROMPT:], device=lm.device)[:, None]  # (c, 1)
    steps = [feed_batch(lm, slots, [token, token], pending) for token in fed]
    return torch.stack(steps, 1), _join_rows(lm.tap.flush(pending, slots.mask(slots.width)), len(ids))


def _join_rows(parts: list[Tensor], n: int) -> Tensor | None:
    """Rows (B, h, c, k) of the last queries, in order, over all n keys (B, h, c, n); windows hold the last keys."""
    if not parts:
        return None
    end, padded = n - sum(part.shape[2] for part in parts), []
    for part in parts:
        end += part.shape[2]
        padded.append(torch.nn.functional.pad(part, (end - part.shape[3], n - end)))
    return torch.cat(padded, 2)


def _row_distance(rows: Tensor, own: Tensor) -> Tensor:
    """How far rows (h, c, k) are from a map's last ones (h, n, n), and from 0 in the columns before its first key."""
    padded = rows.shape[-1] - own.shape[-1]
    return torch.maximum((rows[..., padded:] - own[:, -rows.shape[1] :]).abs().max(), rows[..., :padded].abs().sum())


def _logit_distance(a: Tensor, b: Tensor) -> Tensor:
    """Largest difference of logits, relative to the largest of them."""
    finite = torch.isfinite(a) & torch.isfinite(b)
    a, b = a.float()[finite], b.float()[finite]
    return (a - b).abs().max() / b.abs().max().clamp_min(1.0)


def _make_check(name: str, measured: Tensor, limit: float, note: str = "", costs: str = "") -> Check:
    value = float(measured.max())
    return Check(name, value <= limit, value, limit, note, costs)  # NaN fails
