"""What each passage in view gave to the text written after it, measured by leaving passages out.

A text that was written with k passages in view is scored again, token by token, under every subset
of them: the prompt is the recorded one, without the passages that are left out; the others keep
their numbers. The Shapley value of a passage (Shapley 1953) is its part of the difference that all
of them make: the parts add up. With more than ``MOST`` different passages each is left out once
instead. Passages of equal text are left out together and share their value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import factorial
from typing import Any, NamedTuple

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.data.datasets import needed_passages
from dragin_lab.errors import SettingError
from dragin_lab.run.branch import answer_branch, fixed_facts
from dragin_lab.run.setup import Setup
from dragin_lab.study.attribution import Place, passage_at
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.frames import list_differing
from dragin_lab.trace.records import Attributed, AttributedText
from dragin_lab.trace.trace import Passage, Prompt, Step, Trace

Span = tuple[int, int]  # half-open characters
MOST = 5  # different passages of which all subsets are scored
APART = 0.05  # by how much a probability may differ from the recorded one of the same model


def list_subsets(k: int) -> np.ndarray:
    """Every subset of k passages, that of number s by its bits: none first, all last."""
    return (np.arange(2**k)[:, None] >> np.arange(k)) % 2 == 1  # (2^k, k) bool


def shapley(value: np.ndarray) -> np.ndarray:
    """The Shapley values of k passages, from the values (2^k, n) of their subsets in the order of
    ``list_subsets``.

    φ_i = Σ over S without i of |S|! (k - |S| - 1)! / k! · (v(S with i) - v(S))
    """
    k = len(value).bit_length() - 1
    subset = np.arange(2**k)  # (2^k,)
    size = list_subsets(k).sum(1)  # (2^k,)
    weights = [factorial(s) * factorial(k - s - 1) / factorial(k) for s in range(k)]
    phi = np.zeros((k, value.shape[1]))
    for i in range(k):
        without = subset[subset >> i & 1 == 0]  # (2^(k-1),)
        gains = value[without | 1 << i] - value[without]  # (2^(k-1), n)
        weight = np.take(weights, size[without])  # (2^(k-1),)
        phi[i] = weight @ gains  # (n,)
    return phi  # (k, n)


# -- what was in view ------------------------------------------------------------------------------


class KeptText(NamedTuple):
    """A text of a trace, of which the first n tokens were kept."""

    step: int | None
    source: str
    draft: Draft
    prompt: Prompt | None
    n: int


def list_texts(trace: Trace) -> Iterator[KeptText]:
    """Every text of which some tokens were kept."""
    for step in trace.steps:
        for source, draft, end in step.texts:
            if end is None:
                continue
            starts, stops = draft.offsets.T  # (n,), (n,)
            inside = (starts < end) | ((stops == starts) & (starts == end))
            prompt = step.prompt if source == "draft" else step.passages_prompt
            if inside.any():
                yield KeptText(step.index, source, draft, prompt, int(inside.sum()))
    last = trace.extraction
    if last:
        yield KeptText(None, "extraction", last, trace.extraction_prompt, len(last))


def find_in_view(prompt: Prompt, steps: Sequence[Step]) -> list[tuple[Place, Span]]:
    """The passages of some steps that stand in a prompt, in its order: (step, rank), and
    half-open characters.
    """
    occupied: dict[Place, Span] = {}
    for step in reversed(steps):  # the same passage of an earlier retrieval is no longer that one's
        for rank, passage in enumerate(step.passages):
            span = _find_passage(prompt, rank + 1, passage, list(occupied.values()))
            if span is not None:
                occupied[step.index, rank] = span
    return sorted(occupied.items(), key=lambda placed: placed[1])


def _find_passage(prompt: Prompt, number: int, passage: Passage, taken: list[Span]) -> Span | None:
    """Where a passage stands, with its number or, in a layout of one's own, bare: half-open
    characters, the line's end with them; None where it stands nowhere else than in ``taken``.
    """
    pieces = {
        f"[{number}] {passage.text}": taken,
        f"Doc {number}(Title: {passage.title}) {passage.text}": taken,
    }
    if "passages" not in prompt.spans and passage.text.strip():
        parts = {"exemplars", "question", "answer"} & prompt.spans.keys()
        pieces[passage.text] = taken + [prompt.spans[name] for name in parts]
    for piece, spans in pieces.items():
        start = _find_free(prompt.text, piece, spans)
        if start >= 0:
            stop = start + len(piece)
            return start, stop + prompt.text.startswith("\n", stop)
    return None


def _find_free(text: str, piece: str, closed: Sequence[Span]) -> int:
    """The last place of a piece that lies in none of some spans; -1 for none."""
    start = text.rfind(piece)
    while start >= 0 and any(a < start + len(piece) and start < b for a, b in closed):
        start = text.rfind(piece, 0, start + len(piece) - 1)
    return start


def leave_out(prompt: Prompt, left_out: Iterable[Span]) -> Prompt:
    """A prompt without some spans of its text, which do not overlap."""
    out = sorted(left_out)
    text = prompt.text
    for start, stop in reversed(out):
        text = text[:start] + text[stop:]

    def move(place: int) -> int:
        """Where a place of the prompt's text lies now."""
        return place - sum(min(place, stop) - start for start, stop in out if start < place)

    spans = {}
    for name, (start, stop) in prompt.spans.items():
        if move(start) < move(stop):
            spans[name] = (move(start), move(stop))
    written = tuple((move(a), move(b), ids) for a, b, ids in prompt.written)
    return replace(prompt, text=text, spans=spans, written=written)


def attribute_trace(
    setup: Setup,
    method: Any,
    trace: Trace,
    *,
    sure: float,
    least: float,
    attention: bool,
    effect: bool,
    gold: Iterable[str] = (),
) -> Attributed:
    """``Lab.attribute``; ``method`` is the trace's, which branches of it are written by."""
    engine: Any = setup.model
    if not hasattr(engine, "score_many"):
        raise SettingError(
            f"{getattr(engine, 'name', type(engine).__name__)} scores no given text; attribute the"
            " trace with a lab that has its model open: dl.Lab(model), or derive your engine from"
            " the package's Engine"
        )
    recorded = is_recorded_by(engine, trace)
    texts = []
    for text in list_texts(trace):
        texts.append(_attribute_text(engine, trace, text, recorded, attention=attention))
    effects = []
    for step in trace.steps:
        if effect and step.query is not None and trace.scores:
            without = answer_branch(setup, method, trace, step=step.index + 1, passages=[])
            effects.append((step.index, trace.scores["f1"] - without.scores["f1"]))
    labelled = tuple(gold) or needed_passages(trace.question)
    return Attributed(trace.fingerprint, sure, least, tuple(texts), tuple(effects), labelled)


def is_recorded_by(engine: Any, trace: Trace) -> bool:
    """Whether what a trace recorded is what this engine computes: all that it says of itself is the
    same, and its probe within rounding.
    """
    facts = fixed_facts(engine.provenance())
    recorded = {name: trace.provenance.get(name) for name in facts}
    return bool(facts.get("probe")) and not list_differing(recorded, facts)


def _attribute_text(
    engine: Any, trace: Trace, text: KeptText, recorded: bool, *, attention: bool
) -> AttributedText:
    """What each passage in view gave to each of the n tokens of a text.

    ``recorded`` is whether their probabilities with all passages stand in the draft.
    """
    step, source, draft, prompt, n = text
    reached = len(trace.steps) if step is None else step + (source == "continuation")
    in_view = [] if prompt is None else find_in_view(prompt, trace.steps[:reached])
    with_all = draft.logprob[:n]
    if prompt is None or not in_view:
        none = np.zeros((n, 0), np.float32)
        return AttributedText(step, source, (), with_all, with_all, none, none)
    places, spans = zip(*in_view, strict=True)
    group = group_equal_texts([passage_at(trace, place).text for place in places])
    k = int(group.max()) + 1
    subsets = choose_subsets(k)  # (s, k)
    if recorded:
        subsets = subsets[:-1]
    prompts = [prompt_with(prompt, spans, row[group]) for row in subsets]
    logp = engine.score_many(prompts, draft.ids[:n])  # (s, n)
    if recorded:
        logp = np.vstack([logp, with_all])
    else:
        check_same_model(text, logp[-1])
    exact = k <= MOST
    value = shapley(logp) if exact else logp[-1] - logp[1:-1]  # (k, n)
    shared = (value / np.bincount(group)[:, None])[group]  # (passages in view, n)
    paid = _read_attention(engine, draft, prompt, spans, n, attention=attention)
    nats = shared.T.astype(np.float32)
    return AttributedText(step, source, places, logp[-1], logp[0], nats, paid, exact)


def group_equal_texts(texts: Sequence[str]) -> np.ndarray:
    """(len(texts),) the number of each text among the different ones: equal texts share it."""
    different = list(dict.fromkeys(texts))
    return np.array([different.index(text) for text in texts])


def prompt_with(prompt: Prompt, spans: Sequence[Span], kept: np.ndarray) -> Prompt:
    """A prompt with only those of its spans that are ``kept`` (len(spans),) bool."""
    return leave_out(prompt, [span for span, stays in zip(spans, kept, strict=True) if not stays])


def choose_subsets(k: int) -> np.ndarray:
    """The subsets of k passages to score: every one, or of more than ``MOST`` none, each left out,
    and all; (s, k) bool.
    """
    if k <= MOST:
        return list_subsets(k)
    return np.vstack([np.zeros(k, bool), ~np.eye(k, dtype=bool), np.ones(k, bool)])


def check_same_model(text: KeptText, with_all: np.ndarray) -> None:
    """``SettingError`` where the n tokens of a text have other probabilities than were recorded."""
    recorded = text.draft.logprob[: text.n]
    apart = np.abs(np.exp(with_all) - np.exp(recorded))  # (n,)
    t = int(apart.argmax())
    if apart[t] <= APART:
        return
    where = "the extraction" if text.step is None else f"step {text.step + 1}"
    raise SettingError(
        f"{text.draft.tokens[t]!r} in the {text.source} of {where} has probability"
        f" {np.exp(with_all[t]):.3f} under this lab's model, and {np.exp(recorded[t]):.3f} in the"
        " trace; attribute it with the model that wrote it"
    )


def _read_attention(
    engine: Any, draft: Draft, prompt: Prompt, spans: Any, n: int, attention: bool
) -> np.ndarray:
    """(n, k) float32, what the position that wrote each token pays to each passage's tokens; the
    mean over heads.
    """
    if draft.rows is None and attention and engine.has_attention:
        ids = tuple(draft.ids.tolist())
        draft = engine.force(Write(prompt, len(draft), attention=True, prefix=ids))
    if draft.rows is None:
        return np.full((n, len(spans)), np.nan, np.float32)
    rows = draft.rows[:, :n].mean(0, dtype=np.float32)  # (n, p + ...)
    starts, stops = draft.prompt_offsets.T  # (p,), (p,)
    inside = []  # k of (p,)
    for start, stop in spans:
        inside.append((starts < stop) & (stops > start))
    return rows[:, : len(starts)] @ np.array(inside, np.float32).T
