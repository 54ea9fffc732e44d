"""An episode as figures: what was kept, what a query was made from, and which words looked at
which.

Attention paid to a word is the sum over its tokens, attention that a word pays the mean over its
tokens (Clark, Khandelwal, Levy and Manning, "What Does BERT Look At?", 2019, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dragin_lab.checks import shown
from dragin_lab.drawn import draws
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import WORD, Word, character_words
from dragin_lab.trace.kept import cut_off
from dragin_lab.trace.trace import Draft, Prompt, Step, Trace
from dragin_lab.views import theme
from dragin_lab.views.facts import chosen_line, num, plural
from dragin_lab.views.rows import check_trace, find_step, find_text, unit_of

if TYPE_CHECKING:
    from dragin_lab.engines.load import LanguageModel


PARTS = {"question": theme.BLUE, "answer so far": theme.TEAL, "draft": theme.PURPLE}
CANDIDATES = 250  # words that stand on an axis of selections
ABOVE = {"orientation": "h", "y": 1, "yanchor": "bottom"}  # where a short legend stands


@draws(Trace)
def selections(trace: Trace, step: int | None = None) -> go.Figure:
    """What a step's query was made from: every candidate word with the attention that the hit paid
    to it (§3.2).

    Full bars with ✓ were chosen, hatched ones were not; colours and hover texts name the part of
    the text. ``step`` counts from 1; default the first that retrieved. Raises ``SettingError`` for
    a step that is not there.
    """
    retrieved = [one for one in check_trace(trace).steps if one.query is not None]
    if not retrieved:
        return theme.message(
            trace.question.text, "This episode retrieved nothing, so there is no query."
        )
    asking = retrieved[0] if step is None else find_step(trace, step)
    query = asking.query
    name = f"Step {asking.index + 1}"
    if query is None:
        return theme.message(f"{name} asks: nothing", f"{name} retrieved nothing.")
    title = f"{name} asks: {query.text}"
    if not query.words:
        formulator = f"Query formulator {trace.method.get('what', '?')!r}"
        return theme.message(title, f"{formulator} does not weigh words by attention.")
    parts = find_parts(trace, asking)
    hover = [
        f"{theme.label(word)} · {part} · {num(weight)}"
        for word, part, weight in zip(query.words, parts, query.weights, strict=True)
    ]
    names = [theme.clip_label(word, 20) for word in query.words]
    candidates = {"part": parts, "weight": query.weights, "chosen": query.chosen}
    rows = pd.DataFrame(candidates | {"about": hover, "name": names})
    rows = rows.tail(CANDIDATES).reset_index(drop=True)
    figure = theme.Figure()
    for part, chosen in product(PARTS, (True, False)):
        inside = rows[(rows["part"] == part) & (rows["chosen"] == chosen)]
        pattern = theme.HATCH | {"shape": "" if chosen else "/"}
        figure.add_bar(
            x=inside.index,
            y=inside["weight"],
            name=f"{part}, {'✓ chosen' if chosen else 'not chosen'}",
            showlegend=len(inside) > 0,
            text="✓" if chosen else "",
            textposition="outside",
            cliponaxis=False,
            textangle=0,
            marker={"color": PARTS[part], "opacity": 1 if chosen else 0.55, "pattern": pattern},
            customdata=inside["about"],
        )
    draw_edges(rows["part"].tolist(), figure.add_vline, theme.GRID)
    left = len(query.words) - len(rows)
    about = chosen_line(query) + (f"; {plural(left, 'earlier word')} left out" if left else "")
    ticks = {"tickvals": rows.index, "ticktext": rows["name"], "tickangle": -60}
    figure.update_xaxes(showgrid=False, title=about, **ticks)
    unit = unit_of(trace)
    hit = "the hit" if unit == "word" else f"the words that stand for the {unit}"
    figure.update_yaxes(title_text=f"attention from {hit}")
    return theme.finish(figure, title, 400, barmode="overlay", legend=ABOVE)


def draw_edges(parts: Sequence[str], draw: Callable[..., Any], colour: str) -> None:
    for place, (part, following) in enumerate(pairwise(parts), 1):
        if part != following:
            draw(place - 0.5, line_color=colour, line_width=1)


def find_parts(trace: Trace, step: Step) -> list[str]:
    """The part of the text that each candidate of a query stands in; candidates are in text
    order, hits are none.
    """
    query = step.query
    draft = ""
    assert query is not None
    if step.draft is not None:
        draft = step.draft.text[: step.kept_end("draft") or 0]
        if trace.method.get("variant") == "reference":
            # the released code also reads the rest of the sentence
            draft = f"{draft} {cut_off(step)}"
    before = trace.steps[step.index - 1].answer if step.index else ""
    words = list[str]()
    parts = list[str]()
    for part, text in zip(PARTS, (trace.question.text, before, draft), strict=True):
        inside = WORD.findall(text)
        words += inside
        parts += [part] * len(inside)
    place = 0
    part = "question"
    of_candidates = []
    for candidate in query.words:
        if candidate in words[place:]:
            place = words.index(candidate, place) + 1
            part = parts[place - 1]
        of_candidates.append(part)
    return of_candidates


Part = tuple[str, Word]  # "question", "answer so far" or "draft", and a word of it
MAX_WORDS = 80  # on an axis
SCALE = [
    [0, "rgba(0, 114, 178, 0)"],
    [0.15, "rgba(0, 114, 178, .45)"],
    [1, "rgba(0, 114, 178, 1)"],
]
NO_ATTENTION = (
    "This trace kept no attention. It is kept where a query is made from the draft's own rows, as\n"
    "dl.method('dragin') does; trace.attention(lm=lab.model) has a model read the text again."
)


@dataclass(frozen=True)
class WordMap:
    """Attention between words, ``paid (h, r, c)`` float32: row r pays column c; NaN where it
    cannot look ahead.
    """

    paid: np.ndarray
    rows: list[Part]
    columns: list[Part]
    heads: list[int]


@draws(Trace)
def attention(
    trace: Trace,
    step: int | None = None,
    head: int | None = None,
    *,
    lm: LanguageModel | None = None,
) -> go.Figure:
    """The attention of a step's draft as a map of words; a menu chooses the mean of the heads or
    one head.

    Without ``lm`` it shows the rows that were kept while the draft was written: its words look at
    the question, the answer so far and the draft. With ``lm`` the model reads question and answer
    once more by themselves, as the reference variant does, so it works for every trace. ``step``
    counts from 1; ``head`` is shown first, default the mean. The last 80 words stand on an axis.
    Raises ``SettingError`` for a step or head that does not exist.
    """
    if not (lm is None or hasattr(lm, "tokenizer")):
        raise SettingError(
            f"lm {shown(lm)} is {type(lm).__name__}; give the LanguageModel that wrote the trace"
        )
    if not check_trace(trace).continuations:
        return theme.message(
            trace.question.text, "Nothing is written yet, so there is no attention to show."
        )
    own, name, _ = find_text(trace, step)
    if lm is not None:
        answer = trace.text if step is None or own is None else own.answer
        words = read_again(trace.question.text, answer, lm)
        name = "question and answer, read again by themselves"
    else:
        steps = [one for one in trace.steps if step is None or one is own]
        texts = [(one.draft, one.prompt) for one in steps]
        texts += [(one.continuation, one.passages_prompt) for one in steps]
        kept = (pair for pair in texts if pair[0] is not None and pair[0].rows is not None)
        text, prompt = next(kept, (None, None))
        if text is None or prompt is None:
            return theme.message(trace.question.text, NO_ATTENTION)
        words = written_map(trace, text, prompt)
    if head is not None and not (isinstance(head, int) and head in words.heads):
        raise SettingError(
            f"head={shown(head)} was not captured; give one of {', '.join(map(str, words.heads))}"
        )
    return draw_map(words, f"{trace.question.text} · {name}", head)


def written_map(trace: Trace, text: Draft, prompt: Prompt) -> WordMap:
    """The rows kept while a text was written: row t + 1 is token t looking back."""
    kept = text.rows
    assert kept is not None
    columns = list_prompted(text, prompt)
    rows = []
    p = len(text.prompt_ids)
    for word in character_words(text.text, text.offsets):
        if word.text:
            rows.append(("draft", word))
            columns.append(("draft", Word(word.text, p + word.start, p + word.stop)))
    heads = trace.provenance.get("heads")
    if not isinstance(heads, list | tuple) or len(heads) != len(kept):
        heads = range(len(kept))
    paid = pay_attention(kept[:, 1:].astype(np.float32), rows, columns, first=p)
    return WordMap(paid, rows, columns, [int(head) for head in heads])


def list_prompted(text: Draft, prompt: Prompt) -> list[Part]:
    """The words of the question and of the answer so far, by their tokens of the prompt."""
    words: list[Part] = []
    starts, stops = text.prompt_offsets.T
    for name, part in (("question", "question"), ("answer", "answer so far")):
        a, b = prompt.spans.get(name, (0, 0))
        inside = np.flatnonzero((stops > a) & (starts < b))
        own = np.clip(text.prompt_offsets[inside], a, b)
        for word in character_words(prompt.text, own):
            if word.text:
                first = inside[word.start]
                last = inside[word.stop - 1]
                there = Word(word.text, int(first), int(last) + 1)
                words.append((part, there))
    return words


def read_again(question: str, answer: str, lm: LanguageModel) -> WordMap:
    """Question and answer read by themselves: every word looks at every word before it."""
    text = f"{question} {answer}"
    ids, offsets = lm.tokenizer.encode_with_offsets(text)
    attention = np.asarray(lm.attend(ids), np.float32)  # (h, n, n)
    words = [
        ("question" if int(offsets[word.start, 0]) < len(question) else "answer", word)
        for word in character_words(text, offsets)
        if word.text
    ]
    heads = list(range(len(attention))) if lm.tap.heads is None else [int(i) for i in lm.tap.heads]
    return WordMap(pay_attention(attention, words, words, first=0), words, words, heads)


def pay_attention(
    attention: np.ndarray, rows: list[Part], columns: list[Part], first: int
) -> np.ndarray:
    """(h, r, c) float32: the mean over a row's tokens of the sum over a column's; NaN where the
    column lies ahead.

    ``attention`` is (h, queries, keys); query q is the position ``first + q`` of the keys.
    """
    to_words = []
    for _, word in columns:
        to_words.append(attention[:, :, word.start : word.stop].sum(axis=2))
    of_tokens = np.stack(to_words, axis=2)  # (h, queries, c)
    of_words = []
    for _, word in rows:
        of_words.append(of_tokens[:, word.start : word.stop].mean(axis=1))
    paid = np.stack(of_words, axis=1)  # (h, r, c)
    starts = np.array([word.start for _, word in columns])
    stops = np.array([word.stop for _, word in rows])
    ahead = starts >= first + stops[:, None]  # (r, c)
    return np.where(ahead, np.nan, paid)


def draw_map(words: WordMap, title: str, head: int | None = None) -> go.Figure:
    """The map, with a menu of the heads where there are several."""
    rows = words.rows[-MAX_WORDS:]
    columns = words.columns[-MAX_WORDS:]
    most = max(len(words.rows), len(words.columns))
    if most > MAX_WORDS:
        title = f"The last {MAX_WORDS} of {most} words · {title}"
    kept = words.paid[:, -MAX_WORDS:, -MAX_WORDS:]
    maps = {f"mean of {plural(len(words.heads), 'head')}": kept.mean(axis=0)}  # (r, c) each
    maps |= {f"head {number}": paid for number, paid in zip(words.heads, kept, strict=True)}
    chosen = 0 if head is None else 1 + words.heads.index(head)
    name, paid = list(maps.items())[chosen]
    looked_at = [(theme.label(word.text), part) for part, word in columns]
    hover = []
    for _, word in rows:
        looks = theme.label(word.text)
        hover.append([f"{looks} → {text} ({part})" for text, part in looked_at])
    figure = theme.Figure().add_heatmap(
        z=paid,
        name=name,
        customdata=hover,
        coloraxis="coloraxis",
        hoverongaps=False,
        hovertemplate="%{customdata}: %{z:.3f}<extra></extra>",
    )
    draw_edges([part for part, _ in columns], figure.add_vline, theme.INK)
    draw_edges([part for part, _ in rows], figure.add_hline, theme.INK)
    figure.update_xaxes(title="is looked at", tickangle=-60, **list_ticks(columns))
    figure.update_yaxes(title="looks", autorange="reversed", **list_ticks(rows))
    menu: dict[str, Any] = {"x": 1, "y": 1.02, "xanchor": "right", "yanchor": "bottom"}
    menu |= {"active": chosen, "bgcolor": "#ffffff", "font": {"color": "#24211d"}}
    menu["buttons"] = buttons = []
    for name, paid in maps.items():
        exchanged = {"z": [paid.round(3).tolist()], "name": [name]}
        buttons.append({"label": name, "method": "restyle", "args": [exchanged]})
    look = {"colorscale": SCALE, "cmin": 0, "colorbar_title": "paid"}
    menus = [menu] if len(words.heads) > 1 else []
    return theme.finish(figure, title, 240 + 19 * len(rows), coloraxis=look, updatemenus=menus)


def list_ticks(words: list[Part]) -> dict[str, Any]:
    labels = [theme.clip_label(word.text, 18) for _, word in words]
    return {"tickvals": [*range(len(words))], "ticktext": labels, "showgrid": False}
