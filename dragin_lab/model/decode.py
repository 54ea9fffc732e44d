"""The decode loop: one forward per token on a key-value cache, with everything measured on the way.

Forward t gives the distribution of token t and the attention row of the token before it, so n tokens take n forwards,
and one more in which the last token looks back. A draft that a cache holds is replayed without a forward, and a text
that is there already is measured in one (teacher forcing).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dragin_lab.checks import text as as_text
from dragin_lab.core.episode import Write
from dragin_lab.errors import ModelError
from dragin_lab.model.caches import Prefix
from dragin_lab.model.measure import Recorder
from dragin_lab.model.tap import Pending, hidden_states
from dragin_lab.model.tapped import TappedModel
from dragin_lab.model.writing import Keep, TokenEvent, Writing
from dragin_lab.trace.trace import Continuation, Prompt

ROWS_AT_ONCE = 32  # attention rows computed together, where no ``Stop`` needs them earlier


@torch.inference_mode()
def feed_tokens(
    lm: TappedModel,
    prefix: Prefix,
    ids: list[int],
    pending: Pending | None,
    placed: Tensor | None = None,
    writing: Writing | None = None,
) -> Tensor:
    """Feed ids after the cache; returns the last position's logits (V,) and puts its row into ``pending``.

    ``placed`` (c,) has the ids where they are on the device already; ``writing`` gets the hidden state it asks for.
    """
    fed = torch.tensor(ids, device=lm.device) if placed is None else placed
    inputs = {"input_ids": fed[None], lm.cache_argument: prefix.cache, "use_cache": True}
    prefix.sound = False
    with lm.lock, hidden_states(lm.model, [] if writing is None else writing.hidden) as states:
        if pending is None:
            output, _ = lm.tap.forward(0, **inputs, **lm.only_last)
        else:
            output = lm.tap.step(pending, **inputs, **lm.only_last)
    prefix.ids += ids
    prefix.sound = True
    if writing is not None:
        writing.state(states, 0)
    logits: Tensor = output.logits[0, -1]  # (V,)
    return logits.clone() if output.logits.shape[1] > 1 else logits  # not a view that keeps all of them


def read_prompt(
    lm: TappedModel, ids: list[int], ends: tuple[int, ...], pending: Pending | None, writing: Writing | None = None
) -> tuple[Prefix, Tensor, int]:
    """Feed a prompt in the parts that end at ``ends``, after those that are cached.

    Returns the cache, the logits after the prompt (V,) and how many tokens were cached; the last position's row goes
    into ``pending``. ``writing`` as for ``feed_tokens``.
    """
    prefix = lm.prefixes.take(ids, ends)
    reused = len(prefix.ids)
    for end in ends[len(prefix.ends) :]:
        feed_tokens(lm, prefix, ids[len(prefix.ids) : end], None)
        prefix.ends += (end,)
        lm.prefixes.keep(prefix)
    return prefix, feed_tokens(lm, prefix, ids[len(prefix.ids) :], pending, writing=writing), reused


def finish_stream(tokens: Generator[TokenEvent, None, Continuation]) -> Continuation:
    """Run a stream to its end."""
    while True:
        try:
            next(tokens)
        except StopIteration as end:
            continuation: Continuation = end.value
            return continuation


@torch.inference_mode()
def look_back(lm: TappedModel, recorder: Recorder, pending: Pending, block: int = 0) -> None:
    """Hand the rows so far to the recorder; ``block`` as for ``Tap.flush``."""
    with lm.lock:
        rows = lm.tap.flush(pending, block=block)
    for weights in rows:
        recorder.looked_back(weights)


def stream(
    lm: TappedModel,
    draft: Write,
    seed: int | None = None,
    *,
    every: bool = True,
    capture: bool = True,
    keep: Keep | None = None,
) -> Generator[TokenEvent, None, Continuation]:
    """Write the continuation of a draft, yielding a ``TokenEvent`` after every token; returns the ``Continuation``.

    ``draft.stop`` is asked after every token. At the check after token t (the first is 0) the rows of the tokens
    before t are known, so ``SoFar.received`` is settled by the tokens up to t - 1, and is 0 for t - 1 and t. The
    ``received`` of the result also knows the last token's row.

    Args:
        lm: the model.
        draft: the request.
        seed: of the sampling; ignored under greedy decoding.
        every: yield events; without, distributions are measured in batches unless the ``Stop`` needs them earlier.
        capture: False leaves the attention out (``received`` is then NaN); for measuring the cost of it.
        keep: called at the end with what a cache needs to serve the draft again (``replay``).

    Raises:
        ModelError: an empty prompt without BOS; a text longer than the position table of the model.
    """
    pending = Pending()

    def rows_so_far() -> None:
        look_back(lm, writing.recorder, pending, 0 if writing.one_by_one else ROWS_AT_ONCE)

    writing = Writing(lm, draft, seed, rows_so_far, followed=every, capture=capture, keep=keep)
    tapped = pending if capture else None
    prefix, logits, reused = read_prompt(lm, writing.prompt_ids, writing.prompt_ends, tapped, writing)
    while not writing.stopped:
        writing.take(logits)
        if every:
            yield writing.event()
        writing.check()
        if len(pending) >= ROWS_AT_ONCE:
            rows_so_far()
        logits = feed_tokens(lm, prefix, writing.ids[-1:], tapped, writing.last, writing)
        writing.fed()
    rows_so_far()
    return writing.continuation(reused)


@torch.inference_mode()
def replay(
    lm: TappedModel, draft: Write, cached: Mapping[str, np.ndarray], way: str
) -> tuple[list[TokenEvent], Continuation] | None:
    """The events and the continuation of a draft, as the model would give them.

    None where the cached tokens end before the draft does, and where its ``Stop`` does not look at attention as the one
    did that they were computed for, ``way`` (``Writing.way``; "beside" serves any).

    Args:
        cached: arrays of ``Recorder.to_keep``, after the same prompt with the same bias.
    """
    n = len(cached["ids"])
    blind = "among" not in cached  # a model without attention has no rows
    rows = np.zeros((n + 1, n), np.float32)  # what each query position pays to the tokens; row r has r entries
    rows[np.tril_indices(n + 1, -1, n)] = 0.0 if blind else cached["among"]

    def look_back() -> None:
        """Hand over the rows that the model would have known by now."""
        first, known = writing.recorder.rows, fed + 1
        if known > first and not blind:
            writing.recorder.looked_back(torch.tensor(rows[None, None, first:known, : known - 1]))

    fed = 0  # tokens
    writing = Writing(lm, draft, None, look_back, followed=True, capture=False, device=torch.device("cpu"))
    measured = writing.recorder.restore(cached, attention=draft.attention)
    warped = torch.tensor(cached["entropy_processed"]) if "entropy_processed" in cached else None
    events = []
    for t, token in enumerate(cached["ids"].tolist()):
        writing.chose(token, measured.of(t), warped=None if warped is None else warped[t : t + 1])
        events.append(writing.event())
        writing.check()
        if way not in ("beside", writing.way):
            return None
        fed = t + 1
        writing.fed()
        if writing.stopped:
            break
    else:
        return None
    look_back()
    return events, replace(writing.continuation(len(writing.prompt_ids)), stored=True)


@torch.inference_mode()
def score(
    lm: TappedModel,
    prompt: Prompt,
    text: str,
    *,
    attention: bool = False,
    hidden: int | str | None = None,
) -> Continuation:
    """``text`` measured after ``prompt``; ``stopped`` is "forced". See ``LanguageModel.score``."""
    began = time.perf_counter()
    prompt_ids, prompt_offsets = lm.prompt(prompt)
    closing = _count_closing(lm) if prompt.special else 0
    before = prompt_ids[: len(prompt_ids) - closing]
    whole = lm.tokenizer.encode(prompt.text + as_text("text", text), special=prompt.special)
    if whole[: len(before)] != before:
        raise ModelError(
            f"{text[:20]!r} merges with the end of the prompt into other tokens, so it cannot be scored after it; "
            "begin the text with a space"
        )
    ids = whole[len(before) : len(whole) - closing]
    if not ids:
        raise ModelError(f"the text to score, {text!r}, has no tokens; give some text")
    recorder = measure_text(lm, prompt_ids, ids, attention=attention, hidden=hidden)
    return recorder.continuation(
        lm.tokenizer, prompt_ids, prompt_offsets, stopped="forced", seconds=time.perf_counter() - began
    )


def _count_closing(lm: TappedModel) -> int:
    """How many special tokens the tokenizer puts after a text (most put none)."""
    ids = lm.tokenizer.encode("a", special=True)
    return next(count for count, token in enumerate(reversed(ids)) if token not in lm.tokenizer.silent)


@torch.inference_mode()
def measure_text(
    lm: TappedModel,
    prompt_ids: list[int],
    ids: list[int],
    *,
    attention: bool,
    hidden: int | str | None = None,
) -> Recorder:
    """What the model would have measured had it written ``ids`` after a prompt: one forward over both.

    It leaves the caches of the drafts alone. Raises ``ModelError`` for a text longer than the position table.
    """
    p, n = len(prompt_ids), len(ids)
    lm.refuse_overrun(p, n)
    inputs = {"input_ids": torch.tensor([prompt_ids + ids], device=lm.device), "use_cache": False}
    if lm.only_last:
        inputs["logits_to_keep"] = n + 1
    with lm.lock, hidden_states(lm.model, [] if hidden is None else [hidden]) as states:
        output, rows = lm.tap.forward(n + 1, **inputs)
    recorder = Recorder(p, n, lm.alternatives, attention, lm.device)
    for token, logits in zip(ids, output.logits[0, -(n + 1) : -1], strict=True):  # (V,) each
        recorder.chose(token, logits)
    if rows is not None:
        recorder.looked_back(rows)
    if hidden is not None:
        recorder.states = list(states[hidden][0, -(n + 1) : -1])
    return recorder
