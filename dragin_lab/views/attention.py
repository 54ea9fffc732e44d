"""The attention map of the captured layer: which words each word of the answer looked at, by the mean and by head.

Attention paid to a word is the sum over its tokens, attention that a word pays the mean over its tokens (Clark,
Khandelwal, Levy and Manning, "What Does BERT Look At?", 2019, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import count as count_of
from dragin_lab.checks import shown
from dragin_lab.core.words import Word, character_words
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.trace.trace import Continuation, Prompt, Step, Trace
from dragin_lab.views.figures import INK, SOFT, clip_label, draw_panels, make_figure, new_drawing
from dragin_lab.views.frame import View, make_message, open_trace
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import clip, count

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.model.load import LanguageModel

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

    ``rows`` and ``columns`` are (part, word), ``rest (h, r)`` is what went elsewhere, ``left_out`` says what was cut.
    """

    paid: np.ndarray
    rows: list[tuple[str, str]]
    columns: list[tuple[str, str]]
    rest: np.ndarray
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
    max_words = count_of("max_words", max_words)
    if max_words < 2:
        raise SettingError(f"max_words={max_words} leaves no map; give 2 or more")
    chosen = _find_step(shown_trace, step)
    if not (lm is None or hasattr(lm, "tokenizer")):
        raise SettingError(f"lm {shown(lm)} is {type(lm).__name__}; give the LanguageModel that wrote the trace")
    if lm is not None:
        answer = shown_trace.text if chosen is None else chosen.answer
        if not answer.strip():
            return make_message("Attention map", NOTHING_WRITTEN)
        words = read_again(shown_trace.question.text, answer, lm, max_words)
        return _map_figure(words, head, *_figure_titles(shown_trace, None, lm.provenance()))
    if not shown_trace.continuations:
        return make_message("Attention map", NOTHING_WRITTEN)
    steps = [chosen] if chosen else shown_trace.steps
    with_rows = next(((s, *kept) for s in steps if (kept := _kept_attention(s)) is not None), None)
    if with_rows is None:
        return make_message("Attention map", NO_ATTENTION)
    shown_step, continuation, prompt = with_rows
    decision, by_word = shown_step.decision, scale_of(shown_trace).unit == "word"
    fired = decision.token if decision is not None and continuation is shown_step.draft and by_word else None
    heads = _head_numbers(shown_trace, continuation.attention)
    words = written_map(continuation, prompt, fired, heads, max_words)
    return _map_figure(words, head, *_figure_titles(shown_trace, shown_step))


def _find_step(trace: Trace, step: int | None) -> Step | None:
    if step is None:
        return None
    step = count_of("step", step)
    if step > len(trace.steps):
        raise SettingError(f"step={step} does not exist; this trace has {count(len(trace.steps), 'step')}, from 1")
    return trace.steps[step - 1]


def _kept_attention(step: Step) -> tuple[Continuation, Prompt] | None:
    """What a step wrote with its attention kept, and its prompt."""
    for continuation, prompt in ((step.draft, step.prompt), (step.continuation, step.passages_prompt)):
        if continuation is not None and prompt is not None and continuation.attention is not None and len(continuation):
            return continuation, prompt
    return None


def _head_numbers(trace: Trace, attention: np.ndarray | None) -> list[int]:
    """The model's numbers of the captured heads; 0 and up where the trace does not say."""
    heads = trace.provenance.get("heads")
    n = 0 if attention is None else len(attention)
    return [int(i) for i in heads] if isinstance(heads, list | tuple) and len(heads) == n else list(range(n))


# -- from tokens to words ---------------------------------------------------------------------------------------------


def written_map(
    continuation: Continuation, prompt: Prompt, fired: int | None, heads: list[int], max_words: int
) -> WordMap:
    """The rows kept while a text was written: row t + 1 is token t looking back."""
    assert continuation.attention is not None
    attention = continuation.attention.astype(np.float32)  # (h, n + 1, p + n)
    p, n = len(continuation.prompt_ids), len(continuation)
    words = [w for w in character_words(continuation.text, continuation.offsets) if w.text]
    place = next((i for i, w in enumerate(words) if fired is not None and w.start <= fired < w.stop), len(words) - 1)
    rows, rows_cut = _words_around(words, place, max_words)
    keys: list[tuple[str, Word]] = []
    for part in ("question", "answer"):
        a, b = prompt.spans.get(part, (0, 0))
        inside = np.flatnonzero((continuation.prompt_offsets[:, 1] > a) & (continuation.prompt_offsets[:, 0] < b))
        spans = np.clip(continuation.prompt_offsets[inside], a, b)
        in_part = character_words(prompt.text, spans)
        keys += [(part, Word(w.text, int(inside[w.start]), int(inside[w.stop - 1]) + 1)) for w in in_part if w.text]
    keys += [("draft", Word(w.text, p + w.start, p + w.stop)) for w in rows]
    columns, columns_cut = _fit_words(keys, max_words)
    paid = _attention_paid(attention[:, 1:, :], rows, [w for _, w in columns], first=p)
    fired_word = words[place] if fired is not None and words else None
    names = [("draft", f"◆ {w.text}" if w is fired_word else w.text) for w in rows]
    looked_at = [("answer so far" if part == "answer" else part, w.text) for part, w in columns]
    rest = 1 - np.nansum(paid, axis=2)
    assert paid.shape == (len(heads), len(rows), len(columns))
    assert attention.shape[1:] == (n + 1, p + n)
    left_out = _left_out(("word of the draft", rows_cut), ("word looked at", columns_cut))
    return WordMap(paid, names, looked_at, rest, heads, left_out)


def read_again(question: str, answer: str, lm: LanguageModel, max_words: int) -> WordMap:
    """Question and answer read by themselves: every word looks at every word before it."""
    text = f"{question} {answer}"
    ids, offsets = lm.tokenizer.encode_with_offsets(text)
    attention = np.asarray(lm.attend(ids), np.float32)  # (h, n, n)
    words = [w for w in character_words(text, offsets) if w.text]
    parts = [("question" if int(offsets[w.start, 0]) < len(question) else "answer", w) for w in words]
    kept, cut = _fit_words(parts, max_words)
    rows = [w for _, w in kept]
    paid = _attention_paid(attention, rows, rows, first=0)
    names = [(part, w.text) for part, w in kept]
    heads = list(range(len(attention))) if lm.tap.heads is None else [int(i) for i in lm.tap.heads]
    return WordMap(paid, names, names, 1 - np.nansum(paid, axis=2), heads, _left_out(("word", cut)))


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


def _words_around(words: Sequence[Word], place: int, most: int) -> tuple[list[Word], int]:
    """At most ``most`` words around one of them, and how many were left out."""
    first = max(0, min(place - most // 2, len(words) - most))
    return list(words[first : first + most]), max(0, len(words) - most)


def _fit_words(words: list[tuple[str, Word]], most: int) -> tuple[list[tuple[str, Word]], int]:
    """At most ``most`` words: the question's start and the text's end, which stand nearest to what is asked."""
    if len(words) <= most:
        return words, 0
    question = [w for w in words if w[0] == "question"][: most // 3]
    rest = [w for w in words if w[0] != "question"]
    return [*question, *rest[len(rest) - (most - len(question)) :]], len(words) - most


def _left_out(*counts: tuple[str, int]) -> str:
    more = [count(n, f"more {name}", f"more {name.replace('word', 'words', 1)}") for name, n in counts if n]
    return f"left out: {', '.join(more)}" if more else ""


# -- the figure -------------------------------------------------------------------------------------------------------


def _figure_titles(trace: Trace, step: Step | None, reader: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """The figure's title and the line below it; ``reader`` is the provenance of the model that read again."""
    where = f"step {step.index + 1}" if step is not None else "question and answer, read again by themselves"
    writer = trace.provenance.get("weights_sha256")
    if reader is not None and writer not in (None, reader.get("weights_sha256")):
        where += " by another model than the one that wrote them"
    layer = (trace.provenance if reader is None else reader).get("layer")
    asked = clip(trace.question.text, 80)[0] + "…" * (len(trace.question.text) > 80)
    return asked, f"{where}{f', layer {layer}' if layer is not None else ''}; each row looks back at the columns"


def _map_figure(words: WordMap, head: int | None, title: str, about: str) -> View:
    if head is None:
        paid, rest, name = (
            words.paid.mean(axis=0),
            words.rest.mean(axis=0),
            f"mean of {count(len(words.heads), 'head')}",
        )
    elif isinstance(head, int) and head in words.heads:
        number = words.heads.index(head)
        paid, rest, name = words.paid[number], words.rest[number], f"head {head}"
    else:
        raise SettingError(f"head={shown(head)} was not captured; give one of {', '.join(map(str, words.heads))}")
    more = len(words.heads) - MAX_HEADS
    notes = [f"{name}, {about}", words.left_out, f"{more} more heads are not shown as small maps" if more > 0 else ""]
    return make_figure(
        title, partial(_draw_maps, words, paid, name), about="; ".join(filter(None, notes)),
        alt=f"Attention of {count(len(words.rows), 'word')} to {count(len(words.columns), 'word')}, {name}.",
        table=_value_table(words, paid, rest), numbers=f"Attention paid, {name}",
    )  # fmt: skip


def _draw_maps(words: WordMap, paid: np.ndarray, name: str, width: int) -> Any:
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


def _value_table(words: WordMap, paid: np.ndarray, rest: np.ndarray) -> pd.DataFrame:
    """The map's values with two decimals, a row per word; what a row pays to other places stands last."""
    import pandas as pd

    cells = [["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in paid.tolist()]
    table = pd.DataFrame(cells, columns=[word for _, word in words.columns], dtype=object)
    table.insert(0, "word", [word for _, word in words.rows])
    return table.assign(elsewhere=[f"{value:.2f}" for value in rest.tolist()])
