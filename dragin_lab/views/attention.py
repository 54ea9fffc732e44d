"""The attention map of the captured layer: which words each word of the answer looked at, per head and averaged.

Attention paid to a word is the sum over its tokens, attention that a word pays the mean over its tokens (Clark,
Khandelwal, Levy and Manning, "What Does BERT Look At?", 2019, section 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import count as count_of
from dragin_lab.checks import shown
from dragin_lab.core.words import Word, character_words
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.trace.trace import Continuation, Prompt, Step, Trace
from dragin_lab.views.figures import COLOURS, INK, dressed, graph_objects, label, message_figure, titled
from dragin_lab.views.frame import opened
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import clip, count

if TYPE_CHECKING:
    from dragin_lab.model.load import LanguageModel

MAX_WORDS = 80
NO_ATTENTION = (
    "This trace kept no attention, so there is no map. It is kept where a query is made from the draft's own rows, as "
    "dl.method('dragin', variant='paper') does; attention_map(trace, lm=lm) has a model read the text again."
)


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
    trace: Trace | str | Path, *, step: int | None = None, lm: LanguageModel | None = None, max_words: int = MAX_WORDS
) -> Any:
    """The attention of a step's draft as a heatmap of words with a slider over the heads; a plotly figure.

    Without ``lm`` the rows that were kept while the draft was written: its words look at the question, the answer so
    far and the draft. With ``lm`` the model reads question and answer once more by themselves, as the reference variant
    does, so that both axes hold both, and it works for every trace. ``step`` counts from 1; default the first step that
    has something to show, with ``lm`` the whole answer. At most ``max_words`` words stand on an axis; the title says
    what was left out. A trace without attention, or a file that holds none, gives its message in place.
    """
    graph_objects()
    try:
        found = opened(trace)
    except TraceFileError as error:
        return message_figure(str(error))
    max_words = count_of("max_words", max_words)
    if max_words < 2:
        raise SettingError(f"max_words={max_words} leaves no map; give 2 or more")
    chosen = _chosen(found, step)
    if not (lm is None or hasattr(lm, "tokenizer")):
        raise SettingError(f"lm {shown(lm)} is {type(lm).__name__}; give the LanguageModel that wrote the trace")
    if lm is not None:
        answer = found.text if chosen is None or step is None else chosen.answer
        if not answer.strip():
            return message_figure("Nothing is written yet, so there is no attention to show.")
        return _figure(read_again(found.question.text, answer, lm, max_words), _about(found, None, lm.provenance()))
    with_rows = [s for s in ([chosen] if chosen else found.steps) if _kept(s) is not None]
    if not found.continuations:
        return message_figure("Nothing is written yet, so there is no attention to show.")
    if not with_rows:
        return message_figure(NO_ATTENTION)
    made, prompt = _kept(with_rows[0]) or (None, None)
    assert made is not None
    assert prompt is not None
    heads = _heads(found, made.attention)
    decision, by_word = with_rows[0].decision, scale_of(found).unit == "word"
    fired = decision.token if decision is not None and made is with_rows[0].draft and by_word else None
    return _figure(written_map(made, prompt, fired, heads, max_words), _about(found, with_rows[0]))


def _chosen(trace: Trace, step: int | None) -> Step | None:
    if step is None:
        return None
    step = count_of("step", step)
    if step > len(trace.steps):
        raise SettingError(f"step={step} does not exist; this trace has {count(len(trace.steps), 'step')}, from 1")
    return trace.steps[step - 1]


def _kept(step: Step) -> tuple[Continuation, Prompt] | None:
    """What a step wrote with its attention kept, and its prompt."""
    for made, prompt in ((step.draft, step.prompt), (step.continuation, step.passages_prompt)):
        if made is not None and prompt is not None and made.attention is not None and len(made):
            return made, prompt
    return None


def _heads(trace: Trace, attention: np.ndarray | None) -> list[int]:
    told = trace.provenance.get("heads")
    n = 0 if attention is None else len(attention)
    return [int(i) for i in told] if isinstance(told, list | tuple) and len(told) == n else list(range(n))


# -- from tokens to words ---------------------------------------------------------------------------------------------


def written_map(made: Continuation, prompt: Prompt, fired: int | None, heads: list[int], max_words: int) -> WordMap:
    """The rows kept while a text was written: row t + 1 is token t looking back."""
    assert made.attention is not None
    attention = made.attention.astype(np.float32)  # (h, n + 1, p + n)
    p, n = len(made.prompt_ids), len(made)
    words = [w for w in character_words(made.text, made.offsets) if w.text]
    place = next((i for i, w in enumerate(words) if fired is not None and w.start <= fired < w.stop), len(words) - 1)
    rows, rows_cut = _around(words, place, max_words)
    keys: list[tuple[str, Word]] = []
    for part in ("question", "answer"):
        a, b = prompt.spans.get(part, (0, 0))
        inside = np.flatnonzero((made.prompt_offsets[:, 1] > a) & (made.prompt_offsets[:, 0] < b))
        spans = np.clip(made.prompt_offsets[inside], a, b)
        found = character_words(prompt.text, spans)
        keys += [(part, Word(w.text, int(inside[w.start]), int(inside[w.stop - 1]) + 1)) for w in found if w.text]
    keys += [("draft", Word(w.text, p + w.start, p + w.stop)) for w in rows]
    columns, columns_cut = _fitting(keys, max_words)
    paid = _paid(attention[:, 1:, :], rows, [w for _, w in columns], first=p)
    spoke = words[place] if fired is not None and words else None
    names = [("draft", f"◆ {w.text}" if w is spoke else w.text) for w in rows]
    shown = [("answer so far" if part == "answer" else part, w.text) for part, w in columns]
    rest = 1 - np.nansum(paid, axis=2)
    assert paid.shape == (len(heads), len(rows), len(columns))
    assert attention.shape[1:] == (n + 1, p + n)
    said = _cut(("word of the draft", rows_cut), ("word looked at", columns_cut))
    return WordMap(paid, names, shown, rest, heads, said)


def read_again(question: str, answer: str, lm: LanguageModel, max_words: int) -> WordMap:
    """Question and answer read by themselves: every word looks at every word before it."""
    text = f"{question} {answer}"
    ids, offsets = lm.tokenizer.encode_with_offsets(text)
    attention = np.asarray(lm.attend(ids), np.float32)  # (h, n, n)
    words = [w for w in character_words(text, offsets) if w.text]
    parts = [("question" if int(offsets[w.start, 0]) < len(question) else "answer", w) for w in words]
    kept, cut = _fitting(parts, max_words)
    rows = [w for _, w in kept]
    paid = _paid(attention, rows, rows, first=0)
    names = [(part, w.text) for part, w in kept]
    heads = list(range(len(attention))) if lm.tap.heads is None else [int(i) for i in lm.tap.heads]
    return WordMap(paid, names, names, 1 - np.nansum(paid, axis=2), heads, _cut(("word", cut)))


def _paid(attention: np.ndarray, rows: Sequence[Word], columns: Sequence[Word], first: int) -> np.ndarray:
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


def _around(words: Sequence[Word], place: int, most: int) -> tuple[list[Word], int]:
    """At most ``most`` words around one of them, and how many were left out."""
    first = max(0, min(place - most // 2, len(words) - most))
    return list(words[first : first + most]), max(0, len(words) - most)


def _fitting(words: list[tuple[str, Word]], most: int) -> tuple[list[tuple[str, Word]], int]:
    """At most ``most`` words: the question's start and the text's end, which stand nearest to what is asked."""
    if len(words) <= most:
        return words, 0
    question = [w for w in words if w[0] == "question"][: most // 3]
    rest = [w for w in words if w[0] != "question"]
    return [*question, *rest[len(rest) - (most - len(question)) :]], len(words) - most


def _cut(*what: tuple[str, int]) -> str:
    said = [count(n, f"more {name}", f"more {name.replace('word', 'words', 1)}") for name, n in what if n]
    return f"left out: {', '.join(said)}" if said else ""


# -- the figure -------------------------------------------------------------------------------------------------------


def _about(trace: Trace, step: Step | None, reader: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """The figure's title and the line below it; ``reader`` is the provenance of the model that read again."""
    where = f"step {step.index + 1}" if step is not None else "question and answer, read again by themselves"
    writer = trace.provenance.get("weights_sha256")
    if reader is not None and writer not in (None, reader.get("weights_sha256")):
        where += " by another model than the one that wrote them"
    layer = (trace.provenance if reader is None else reader).get("layer")
    asked = clip(trace.question.text, 80)[0] + "…" * (len(trace.question.text) > 80)
    return asked, f"{where}{f', layer {layer}' if layer is not None else ''}; each row looks back at the columns"


def _figure(found: WordMap, about: tuple[str, str]) -> Any:
    go = graph_objects()
    mean = found.paid.mean(axis=0, keepdims=True)
    layers = [("mean", mean[0], found.rest.mean(axis=0))]
    if len(found.heads) > 1:
        layers += [(f"head {h}", found.paid[i], found.rest[i]) for i, h in enumerate(found.heads)]
    figure = dressed(go.Figure())
    x, y = _axis(found.columns), _axis(found.rows)
    for number, (name, paid, rest) in enumerate(layers):
        figure.add_trace(
            go.Heatmap(
                z=np.round(paid, 4),
                x=x,
                y=y,
                visible=number == 0,
                zmin=0,
                zmax=max(float(np.nanmax(paid)), 1e-6) if np.isfinite(paid).any() else 1.0,
                colorscale=_scale(),
                colorbar={
                    "title": {"text": "paid"},
                    "thickness": 12,
                    "lenmode": "pixels",
                    "len": 150,
                    "outlinewidth": 0,
                },
                customdata=np.repeat(np.round(rest, 3)[:, None], paid.shape[1], axis=1),
                hovertemplate="%{y} → %{x}: %{z:.3f}<br>this row pays %{customdata:.0%} elsewhere"
                f"<extra>{name}</extra>",
                xgap=1,
                ygap=1,
                hoverongaps=False,
            )
        )
    figure.update_yaxes(autorange="reversed", tickfont={"size": 11}, showgrid=False)
    figure.update_xaxes(tickangle=-60, tickfont={"size": 11}, showgrid=False)
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(dividercolor=INK, dividerwidth=1)
    says = "; ".join(filter(None, [about[1], found.left_out]))
    height = 300 + min(max(len(found.rows) * 19, 150), 1500)
    figure.update_layout(height=height, margin={"b": 210 if len(layers) > 1 else 120})
    titled(figure, about[0], says)
    if len(layers) > 1:
        figure.update_layout(sliders=[_slider([name for name, _, _ in layers])])
    return figure


def _axis(words: list[tuple[str, str]]) -> list[list[str]]:
    """Two-level categories (part, word); words that repeat anywhere are told apart by signs without width."""
    seen: Counter[str] = Counter()
    names = []
    for _, word in words:
        shown = label(clip(word, 24)[0])
        names.append(shown + "\u200b" * seen[shown])
        seen[shown] += 1
    return [[part for part, _ in words], names]


def _scale() -> list[tuple[float, str]]:
    """From nothing to full, with even steps of the root: small shares, which most are, stay visible."""
    r, g, b = (int(COLOURS[0][i : i + 2], 16) for i in (1, 3, 5))
    return [(step**2, f"rgba({r},{g + 40},{b},{step:.2f})") for step in (0, 0.2, 0.4, 0.6, 0.8, 1.0)]


def _slider(names: list[str]) -> dict[str, Any]:
    steps = [
        {"label": name, "method": "restyle", "args": [{"visible": [i == number for i in range(len(names))]}]}
        for number, name in enumerate(names)
    ]
    return {
        "active": 0,
        "steps": steps,
        "currentvalue": {"prefix": "shown: ", "font": {"size": 12, "color": INK}},
        "font": {"size": 11, "color": INK},
        "pad": {"t": 122},
        "bgcolor": "rgba(128,128,128,0.35)",
        "activebgcolor": COLOURS[3],
        "bordercolor": INK,
        "tickcolor": INK,
        "len": 0.9,
    }
