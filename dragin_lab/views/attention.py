"""The attention map of the captured layer: which words each word of the answer looked at, by the mean and by head.

Attention paid to a word is the sum over its tokens, attention that a word pays the mean over its tokens (Clark,
Khandelwal, Levy and Manning, "What Does BERT Look At?", 2019, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import count as count_of
from dragin_lab.checks import position, shown
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.trace.trace import Draft, Prompt, Step, Trace
from dragin_lab.trace.words import Word, character_words
from dragin_lab.views.figures import INK, SOFT, clip_label, draw_panels, make_figure, new_drawing
from dragin_lab.views.frame import View, make_message, open_trace
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import count

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.engines.load import LanguageModel

MAX_WORDS = 80
MAX_HEADS = 32  # heads shown as small maps
#: Pixels of a row and of a column of the map, and of a small map; the blue is seen on light and on dark.
ROW, COLUMN, SMALL = 19, 17, 110
FULL = "#2f86e4"
NO_ATTENTION = (
    "This trace kept no attention, so there is no map. It is kept where a query is made from the draft's own rows, as "
    "dl.method('dragin', variant='paper') does; attention_map(trace, lm=lm) has a model read the text again."
)
NOTHING_WRITTEN = "Nothing is written yet, so there is no attention to show."


@dataclass(frozen=True)
class WordMap:
    """Attention between words, ``paid (h, r, c)`` float32: row r pays column c; NaN where it cannot look ahead.

    ``rows`` and ``columns`` are (part, word), ``left_out`` says what was cut.
    """

    paid: np.ndarray
    rows: list[tuple[str, str]]
    columns: list[tuple[str, str]]
    heads: list[int]
    left_out: str = ""


def attention_map(
    trace: Trace | str | Path,
    *,
    step: int | None = None,
    lm: LanguageModel | None = None,
    head: int | None = None,
    max_words: int = MAX_WORDS,
) -> View:
    """The attention of a step's draft as a map of words, with a small map for each head under it.

    Without ``lm`` it shows the rows that were kept while the draft was written: its words look at the question, the
    answer so far and the draft. With ``lm`` the model reads question and answer once more by themselves, as the
    reference variant does, so that both axes hold both, and it works for every trace. ``step`` counts from 1; default
    the first step that has something to show, with ``lm`` the whole answer. ``head`` is the head of the large map;
    default the mean of all. At most ``max_words`` words stand on an axis; the line under the title says what was left
    out. A trace without attention, or a file that holds none, gives its message in place. Raises ``SettingError`` for a
    step or a head that does not exist, ``MissingPackageError`` without matplotlib.
    """
    try:
        shown_trace = open_trace(trace)
    except TraceFileError as error:
        return make_message("Attention map", str(error))
    max_words, steps = count_of("max_words", max_words, 2), shown_trace.steps
    if step is not None:
        steps = [steps[position("step", step, len(steps), "the trace")]]
    if not (lm is None or hasattr(lm, "tokenizer")):
        raise SettingError(f"lm {shown(lm)} is {type(lm).__name__}; give the LanguageModel that wrote the trace")
    if not shown_trace.continuations:
        return make_message("Attention map", NOTHING_WRITTEN)
    if lm is not None:
        text = shown_trace.text if step is None else steps[0].answer
        words = read_again(shown_trace.question.text, text, lm, max_words)
        where, reader = "question and answer, read again by themselves", lm.provenance()
        if shown_trace.provenance.get("weights_sha256") not in (None, reader.get("weights_sha256")):
            where += " by another model than the one that wrote them"
    else:
        kept = next(((own, *found) for own in steps if (found := _kept_attention(own)) is not None), None)
        if kept is None:
            return make_message("Attention map", NO_ATTENTION)
        words, reader = written_map(shown_trace, *kept, max_words), shown_trace.provenance
        where = f"step {kept[0].index + 1}"
    where += f", layer {reader['layer']}" if reader.get("layer") is not None else ""
    return _map_figure(words, head, clip_label(shown_trace.question.text, 81), where)


def _kept_attention(step: Step) -> tuple[Draft, Prompt] | None:
    """What a step wrote with its attention kept, and its prompt."""
    for continuation, prompt in ((step.draft, step.prompt), (step.continuation, step.passages_prompt)):
        if continuation is not None and prompt is not None and continuation.rows is not None and len(continuation):
            return continuation, prompt
    return None


# -- from tokens to words ---------------------------------------------------------------------------------------------


def written_map(trace: Trace, step: Step, continuation: Draft, prompt: Prompt, max_words: int) -> WordMap:
    """The rows kept while a step wrote a text: row t + 1 is token t looking back."""
    assert continuation.rows is not None
    attention = continuation.rows.astype(np.float32)  # (h, n + 1, p + n)
    p, n = len(continuation.prompt_ids), len(continuation)
    words = [w for w in character_words(continuation.text, continuation.offsets) if w.text]
    judged = step.decision is not None and continuation is step.draft and scale_of(trace).unit == "word"
    token = step.decision.token if judged and step.decision is not None else None
    fired = next((i for i, w in enumerate(words) if token is not None and w.start <= token < w.stop), None)
    first = max(0, min((len(words) if fired is None else fired) - max_words // 2, len(words) - max_words))
    rows = words[first : first + max_words]
    keys: list[tuple[str, Word]] = []
    for part in ("question", "answer"):
        a, b = prompt.spans.get(part, (0, 0))
        inside = np.flatnonzero((continuation.prompt_offsets[:, 1] > a) & (continuation.prompt_offsets[:, 0] < b))
        in_part = character_words(prompt.text, np.clip(continuation.prompt_offsets[inside], a, b))
        named = "question" if part == "question" else "answer so far"
        keys += [(named, Word(w.text, int(inside[w.start]), int(inside[w.stop - 1]) + 1)) for w in in_part if w.text]
    keys += [("draft", Word(w.text, p + w.start, p + w.stop)) for w in rows]
    columns = _fit_words(keys, max_words)
    paid = _attention_paid(attention[:, 1:, :], rows, [w for _, w in columns], first=p)
    assert attention.shape[1:] == (n + 1, p + n)
    marked = None if fired is None else words[fired]
    cut = [(len(words) - len(rows), "word of the draft"), (len(keys) - len(columns), "word looked at")]
    left_out = ", ".join(
        count(lost, f"more {kind}", f"more {kind.replace('word', 'words', 1)}") for lost, kind in cut if lost
    )
    heads = trace.provenance.get("heads")
    known = heads if isinstance(heads, list | tuple) and len(heads) == len(attention) else range(len(attention))
    return WordMap(
        paid,
        [("draft", f"◆ {w.text}" if w is marked else w.text) for w in rows],
        [(part, w.text) for part, w in columns],
        [int(i) for i in known],
        left_out,
    )


def read_again(question: str, answer: str, lm: LanguageModel, max_words: int) -> WordMap:
    """Question and answer read by themselves: every word looks at every word before it."""
    text = f"{question} {answer}"
    ids, offsets = lm.tokenizer.encode_with_offsets(text)
    attention = np.asarray(lm.attend(ids), np.float32)  # (h, n, n)
    words = [w for w in character_words(text, offsets) if w.text]
    parts = [("question" if int(offsets[w.start, 0]) < len(question) else "answer", w) for w in words]
    kept = _fit_words(parts, max_words)
    rows, cut = [w for _, w in kept], len(parts) - len(kept)
    names = [(part, w.text) for part, w in kept]
    heads = list(range(len(attention))) if lm.tap.heads is None else [int(i) for i in lm.tap.heads]
    paid = _attention_paid(attention, rows, rows, first=0)
    return WordMap(paid, names, names, heads, count(cut, "more word") if cut else "")


def _attention_paid(attention: np.ndarray, rows: Sequence[Word], columns: Sequence[Word], first: int) -> np.ndarray:
    """(h, r, c) float32: the mean over a row's tokens of the sum over a column's; NaN where the column lies ahead.

    ``attention`` is (h, queries, keys); query q is the position ``first + q`` of the keys.
    """
    out = np.full((len(attention), len(rows), len(columns)), np.nan, np.float32)
    for i, row in enumerate(rows):
        mean = attention[:, row.start : row.stop, :].mean(axis=1)  # (h, keys)
        for j, column in enumerate(columns):
            if column.start < first + row.stop:
                out[:, i, j] = mean[:, column.start : column.stop].sum(axis=1)
    return out


def _fit_words(words: list[tuple[str, Word]], most: int) -> list[tuple[str, Word]]:
    """At most ``most`` words: the question's start and the text's end, which stand nearest to what is asked."""
    if len(words) <= most:
        return words
    question = [w for w in words if w[0] == "question"][: most // 3]
    rest = [w for w in words if w[0] != "question"]
    return [*question, *rest[len(rest) - (most - len(question)) :]]


# -- the figure -------------------------------------------------------------------------------------------------------


def _map_figure(words: WordMap, head: int | None, title: str, where: str) -> View:
    if head is not None and not (isinstance(head, int | np.integer) and head in words.heads):
        raise SettingError(f"head={shown(head)} was not captured; give one of {', '.join(map(str, words.heads))}")
    name = f"mean of {count(len(words.heads), 'head')}" if head is None else f"head {head}"
    paid = words.paid.mean(axis=0) if head is None else words.paid[words.heads.index(head)]  # (r, c)
    more = len(words.heads) - MAX_HEADS
    notes = [f"{name}, {where}; each row looks back at the columns"]
    notes += [f"left out: {words.left_out}"] if words.left_out else []
    notes += [f"{more} more heads are not shown as small maps"] if more > 0 else []
    return make_figure(
        title, partial(_draw_maps, words, paid), about="; ".join(notes),
        alt=f"Attention of {count(len(words.rows), 'word')} to {count(len(words.columns), 'word')}, {name}.",
        table=_value_table(words, paid), numbers=f"Attention paid, {name}",
    )  # fmt: skip


def _draw_maps(words: WordMap, paid: np.ndarray, width: int) -> Any:
    width = max(width, 150 + COLUMN * len(words.columns))
    across = max(1, width // SMALL)
    heads = words.heads[:MAX_HEADS] if len(words.heads) > 1 else []
    large, small = 150 + ROW * len(words.rows), math.ceil(len(heads) / across) * SMALL
    drawing = new_drawing(width, large + small)
    parts = drawing.subfigures(2, 1, height_ratios=(large, small)) if heads else [drawing]
    for part in parts:
        part.set_facecolor("none")
    panel = parts[0].subplots()
    image = _draw_map(panel, words, paid)
    for axis, labels in ((panel.xaxis, words.columns), (panel.yaxis, words.rows)):
        axis.set_ticks(range(len(labels)), [clip_label(word, 18) for _, word in labels])
        starts = [i for i in range(len(labels)) if i == 0 or labels[i][0] != labels[i - 1][0]]
        for start, stop in pairwise([*starts, len(labels)]):
            if axis is panel.xaxis:
                middle = (start + stop - 1) / 2
                panel.text(middle, -0.8, clip_label(labels[start][0], 3 * (stop - start)), color=SOFT, ha="center")
    panel.tick_params(axis="x", rotation=90)
    panel.tick_params(length=0, labelcolor=INK)
    bar = parts[0].colorbar(image, ax=panel, fraction=0.03, pad=0.01, aspect=12, shrink=0.7, label="paid")
    bar.outline.set_visible(False)
    if heads:
        _, panels = draw_panels([f"head {h}" for h in heads], width, least=SMALL, most=99, parent=parts[1])
        for panel, paid_by_head in zip(panels, words.paid, strict=False):
            _draw_map(panel, words, paid_by_head)
            panel.set(xticks=(), yticks=())
    return drawing


def _draw_map(panel: Any, words: WordMap, paid: np.ndarray) -> Any:
    """One map ``paid (r, c)``: from see-through to full, by the root, so that small shares stay visible."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    blues = LinearSegmentedColormap.from_list("attention", [f"{FULL}00", f"{FULL}ff"])
    largest = max(float(np.nanmax(paid)), 1e-6) if np.isfinite(paid).any() else 1.0
    image = panel.imshow(paid, cmap=blues, norm=PowerNorm(0.5, 0, largest), aspect="auto", interpolation="nearest")
    parts = [(words.columns, panel.axvline), (words.rows, panel.axhline)]
    for labels, draw_line in parts:
        for at, (before, after) in enumerate(pairwise(labels), 1):
            if before[0] != after[0]:
                draw_line(at - 0.5, color=SOFT, linewidth=1)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    return image


def _value_table(words: WordMap, paid: np.ndarray) -> pd.DataFrame:
    """The map's values with two decimals, a row per word; what a row pays to other places stands last."""
    import pandas as pd

    cells = [["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in paid.tolist()]
    table = pd.DataFrame(cells, columns=[word for _, word in words.columns], dtype=object)
    table.insert(0, "word", [word for _, word in words.rows])
    return table.assign(elsewhere=[f"{1 - paid_here:.2f}" for paid_here in np.nansum(paid, axis=1).tolist()])
