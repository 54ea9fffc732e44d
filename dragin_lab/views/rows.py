"""A text token by token: what is known of each token, as a table, and the heatmap that shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import choice, instance, position
from dragin_lab.errors import SettingError
from dragin_lab.study.whatif import Outcome, Replay
from dragin_lab.text import printable, write_compared
from dragin_lab.trace.trace import Draft, Step, Trace, Words
from dragin_lab.views.facts import num, percent, short

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SOURCES = ("draft", "continuation", "extraction")
LABELLED = 60  # tokens up to which each has its label on the axis
ALTERNATIVES = 4
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def check_trace(trace: Trace) -> Trace:
    """The trace itself; raises ``SettingError`` for what is none."""
    checked: Trace = instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
    return checked


def show_spaces(text: str) -> str:
    """A token among figures: its white space as signs, right-to-left text isolated from what stands around it."""
    shown = printable(text).replace("\n", "↵").replace("\t", "⇥") or "∅"
    shown = shown if shown.strip(" ▁Ġ") else "␣"
    return f"\u2068{shown}\u2069" if _RIGHT_TO_LEFT.search(shown) else shown


def threshold_of(trace: Trace) -> float:
    """θ of the trace's method; NaN where it has none."""
    value = trace.method.get("threshold")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def unit_of(trace: Trace) -> str:
    """What the trigger compares with θ: each "word", each "sentence", or the "draft"."""
    return str(trace.method.get("unit") or "word")


def measure_of(trace: Trace) -> str:
    """What the trigger's scores are called."""
    return str(trace.method.get("measure") or f"{trace.method.get('when') or 'trigger'} score")


def find_text(trace: Trace, step: int | None = None, source: str | None = None) -> tuple[Step | None, str, Draft]:
    """A text of a trace: its step (None of the extraction), which one it is, and the text itself.

    ``step`` counts from 1; default the first step that retrieved after a draft, else the first with a text. ``source``
    is "draft", "continuation" or "extraction"; default the first that is there. Raises ``SettingError`` where there is
    none.
    """
    check_trace(trace)
    names = SOURCES[:2] if source is None else [choice("source", source, SOURCES)]
    if source == "extraction":
        if trace.extraction is None:
            raise SettingError("this trace has no extraction: the answer was read from its text")
        return None, source, trace.extraction
    steps = trace.steps if step is None else [trace.steps[position("step", step, len(trace.steps), "the trace")]]
    there = [(own, name, text) for own in steps for name in names if (text := getattr(own, name)) is not None]
    if not there:
        raise SettingError(f"nothing is written in {'this trace' if step is None else f'step {step}'} yet")
    return next((one for one in there if one[0].query is not None and one[1] == "draft"), there[0])


def token_rows(trace: Trace, step: Step | None, source: str, text: Draft) -> pd.DataFrame:
    """A row for each of a text's n tokens, with what figures and pages say of it.

    ``start`` and ``stop`` are its half-open characters without the space that it begins with: a cut "before the word"
    may stand on either side of it. ``compared`` is what the trigger compared with θ (of the token's word, sentence or
    draft), ``mark`` the number of what fired or was judged as a whole, ``fires`` whether it fired there (``opens``: the
    first token that did), ``stop_word`` and ``spared`` whether it is of a stop word or may not fire, ``cut`` whether it
    was thrown away; ``word``, ``sentence`` and ``mark`` are -1 outside of all. ``name`` is what it is called among
    figures, ``about`` all of it in lines.
    """
    import pandas as pd

    words, peaks = Words(), tuple[float, ...]()
    if step is not None and source == "draft":
        words, peaks = step.words, () if step.decision is None else step.decision.peaks
    n, theta, unit = len(text), threshold_of(trace), unit_of(trace)
    word = np.full(n, -1)  # (n,) -1 for no word: it picks the value that is appended below
    for number, (start, stop) in enumerate(words.spans.tolist()):
        word[start:stop] = number
    known = ((words.score, np.nan), (words.sentence, -1), (words.stop, False), (words.hit, False))
    compared, sentence, stop_word, fires = (np.append(values, none)[word] for values, none in known)
    spared = np.append(words.unjudged, False)[word] & ~stop_word
    own = [printable(text.text[a:b].lstrip(" ")) for a, b in text.offsets.tolist()]
    stops = text.offsets[:, 1]
    starts = np.where([bool(shown) for shown in own], stops - [len(shown) for shown in own], text.offsets[:, 0])
    mark, fired = np.where(fires, word, -1), np.where(fires, word, -2)
    if unit != "word":
        of_peak = sentence if len(peaks) != 1 else np.zeros(n, int)
        compared = np.array([peaks[at] if 0 <= at < len(peaks) else math.nan for at in of_peak], float)
        fires, spared = compared > theta, np.zeros(n, bool)
        whole = np.isfinite(compared) & (starts < stops)
        mark, fired = np.where(whole, 0 if unit == "draft" else sentence, -1), np.where(fires, 0, -2)
    end = None if step is None else step.kept_end(source)
    cut = np.zeros(n, bool) if end is None or end >= len(text.text) else text.offsets[:, 0] >= end
    columns = {
        "start": starts, "stop": stops, "piece": [printable(piece) for piece in text.pieces],
        "name": [show_spaces(shown.strip(" ") or piece) for shown, piece in zip(own, text.pieces, strict=True)],
        "entropy": text.entropy, "received": text.received, "probability": np.exp(text.logprob), "compared": compared,
        "word": word, "sentence": sentence, "mark": mark, "stop_word": stop_word, "spared": spared, "fires": fires,
        "opens": fires & (np.diff(fired, prepend=-2) != 0), "cut": cut,
    }  # fmt: skip
    rows = pd.DataFrame(columns)
    return rows.assign(about=list(_describe_tokens(rows, text, words, unit, theta)))


def list_alternatives(text: Draft, at: int, most: int | None = None) -> list[tuple[str, float, int]]:
    """The likeliest tokens at a place, as (name, probability, id); [] where they were not kept."""
    ids = text.alternative_ids[at, :most].tolist() if at < len(text.alternative_ids) else []
    names = text.alternative_tokens[at] if at < len(text.alternative_tokens) else [f"id {number}" for number in ids]
    shares = text.alternative_probs[at].tolist() if ids else []
    return [(show_spaces(name), share, number) for name, share, number in zip(names, shares, ids, strict=False)]


def _describe_tokens(rows: pd.DataFrame, text: Draft, words: Words, unit: str, theta: float) -> Iterator[str]:
    """What is known of each token, in lines."""
    flags = {"stop_word": "stop word", "fires": "◆ HIT", "spared": "not judged", "cut": "✂ thrown away"}
    for at, row in enumerate(rows.to_dict("records")):
        measures = [f"entropy {num(row['entropy'])}", f"attention received {num(row['received'])}"]
        lines = [
            f"{row['name']}   token {at + 1} of {len(rows)}",
            "   ".join([*measures, f"probability {percent(row['probability'])}"]),
        ]
        facts, number = [], row["word"]
        if number >= 0:
            measured = {"attention": words.attention[number], "entropy": words.entropy[number]}
            facts = [f"word “{show_spaces(words.text[number])}”"]
            facts += [f"{name} {num(value)}" for name, value in measured.items() if np.isfinite(value)]
            if np.isfinite(row["compared"]):
                facts.append(f"{'score' if unit == 'word' else unit} {compare(row['compared'], theta)}")
        lines.append("   ".join([*facts, *(flag for name, flag in flags.items() if row[name])]))
        alternatives = [f"{name} {percent(share)}" for name, share, _ in list_alternatives(text, at, ALTERNATIVES)]
        lines.append(f"likeliest: {' · '.join(alternatives)}" if alternatives else "")
        yield "\n".join(filter(None, lines))


def compare(score: float, theta: float) -> str:
    """``0.446 > θ 0.3``; the score alone where there is no θ."""
    if not (math.isfinite(score) and math.isfinite(theta)):
        return short(score) if not math.isnan(score) else "not scored"
    return f" {'>' if score > theta else '≤'} θ ".join(write_compared(score, theta)).replace("-", "−")


def heatmap(trace: Trace, step: int | None = None, source: str | None = None, theta: float | None = None) -> go.Figure:
    """A text token by token: entropy, attention received, and the trigger's score against θ.

    ◆ stands over what fires, hatched bars may not fire, a shaded stretch was thrown away; the hover text has the
    likeliest alternatives too. ``theta`` judges the stored draft at another threshold, by the method's own code.
    ``step`` and ``source`` as for ``find_text``. Raises ``SettingError`` for a text that is not there, and for
    ``theta`` of a method without a threshold.
    """
    own, name, text = find_text(trace, step, source)
    if theta is not None:
        outcome = Replay(trace).at(threshold=theta)
        trace, own = judge_step(outcome, None if own is None else own.index + 1)
    place = "extraction" if own is None else f"step {own.index + 1}, {name}"
    return draw_tokens(trace, token_rows(trace, own, name, text), f"{trace.question.text} · {place}")


def judge_step(outcome: Outcome, step: int | None) -> tuple[Trace, Step | None]:
    """A trace as other settings judge it, and one of its steps with its stored draft to the end.

    The same draft stands there whatever θ is; what fires in it, and where it would be cut, is as these settings say.
    """
    judged = outcome.judged
    if step is None:
        return judged, None
    own = replace(judged.steps[step - 1], draft=outcome.trace.steps[step - 1].draft)
    return judged, own


def draw_tokens(trace: Trace, rows: pd.DataFrame, title: str) -> go.Figure:
    """``heatmap`` of the rows that ``token_rows`` gives."""
    import plotly.graph_objects as go

    from dragin_lab.views import theme

    scored = bool(np.isfinite(rows["compared"]).any())
    names = ["entropy, nats", "attention received"] + [f"{measure_of(trace)} of the {unit_of(trace)}"] * scored
    axes = ["y", "y2", "y3"][: len(names)]
    shared = {"x": np.arange(1, len(rows) + 1), "customdata": [theme.label(line) for line in rows["about"]]}
    scores, shapes = draw_scores(rows, threshold_of(trace), scored)
    figure = go.Figure().add_bar(y=rows["entropy"], marker_color=theme.BLUE, **shared)
    figure.add_bar(y=rows["received"], yaxis="y2", marker_color=theme.PURPLE, **shared)
    for own in scores if scored else []:
        figure.add_trace({"type": "bar", "yaxis": "y3"} | shared | own)
    for name, mark in explain_marks(rows, threshold_of(trace)) if scored else []:
        figure.add_bar(x=[None], y=[None], yaxis="y3", name=name, showlegend=True, marker=mark, hoverinfo="skip")
    above = {"xref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False}
    for axis, name in zip(axes, names, strict=True):
        figure.add_annotation(above, text=theme.label(name), x=0, xanchor="left", yref=f"{axis} domain")
    if rows["cut"].any():
        figure.add_annotation(above, text="✂ shaded: thrown away", x=1, xanchor="right", yref="y domain")
    figure.update_xaxes(range=[0.5, max(len(rows), 1) + 0.5], showgrid=False)
    ticks = {
        "tickvals": shared["x"],
        "ticktext": [theme.clip_label(name, 18) for name in rows["name"]],
        "tickangle": -60,
    }
    figure.update_xaxes(**ticks if len(rows) <= LABELLED else {"title_text": "token"})
    grid = {"rows": len(names), "columns": 1, "subplots": [[f"x{axis}"] for axis in axes], "ygap": 0.25}
    known = [value for value in (*rows["compared"], threshold_of(trace)) if math.isfinite(value)]
    if scored:  # room for ◆ over the highest bar, and for the name of θ over its line
        low, top = min(0.0, *known), max(0.0, *known)
        figure.update_layout(yaxis3={"range": [low, top + 0.2 * ((top - low) or 1.0)]})
    figure.update_traces(showlegend=False, selector=lambda data: data.name is None)
    height = 150 * len(names) + 130 + 30 * scored
    return theme.finish(figure, title, height, legend=theme.BELOW, shapes=shapes, grid=grid)


def explain_marks(rows: pd.DataFrame, theta: float) -> list[tuple[str, dict[str, Any]]]:
    """What the bars of the scores mean, as far as there are such: a name and the look of each."""
    from dragin_lab.views import theme

    hatch = {"pattern": theme.HATCH | {"shape": "/"}}
    looks: dict[str, tuple[Any, dict[str, Any]]] = {
        "◆ fires": (rows["fires"], {"color": theme.AMBER}),
        "does not fire": (~rows["fires"], {"color": theme.GREY}),
        "stop word, or may not fire": (rows["spared"] | rows["stop_word"], {"color": theme.GREY} | hatch),
        "above θ, behind the word that fired": (is_passed(rows, theta), {"color": theme.GREY, "line": theme.PASSED}),
    }
    return [(name, mark) for name, (there, mark) in looks.items() if (there & np.isfinite(rows["compared"])).any()]


def is_passed(rows: pd.DataFrame, theta: float) -> Any:
    """Which tokens score above θ and do not fire, though they may: another word fired before them."""
    return (rows["compared"] > theta) & ~(rows["fires"] | rows["spared"] | rows["stop_word"])


def draw_scores(rows: pd.DataFrame, theta: float, scored: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What changes with θ, as traces and as shapes.

    The traces are the bars of the scores, and ◆ over each word, sentence or draft that fires; the shapes θ as a line,
    where there are scores, and the stretch that was thrown away.
    """
    from dragin_lab.views import theme

    colours = np.where(rows["fires"], theme.AMBER, theme.GREY).tolist()
    hatch = theme.HATCH | {"shape": np.where(rows["spared"] | rows["stop_word"], "/", "").tolist()}
    edges = np.where(is_passed(rows, theta), 2, 0).tolist()
    at = np.flatnonzero(rows["opens"])
    hover_texts = [theme.label(line) for line in rows["about"]]
    drawn = [
        {
            "y": rows["compared"], "customdata": hover_texts,
            "marker": {"color": colours, "pattern": hatch, "line": theme.PASSED | {"width": edges}},
        },
        {
            "type": "scatter", "x": at + 1, "y": rows["compared"].to_numpy()[at], "mode": "text", "text": "◆",
            "textposition": "top center", "cliponaxis": False, "customdata": [hover_texts[i] for i in at],
        },
    ]  # fmt: skip
    level = {"type": "line", "xref": "x domain", "x0": 0, "x1": 1, "yref": "y3", "y0": theta, "y1": theta}
    named = {"line": theme.THETA, "label": {"text": f"θ {theta:g}", "textposition": "end", "yanchor": "bottom"}}
    shapes = [level | named] if scored and math.isfinite(theta) else []
    if rows["cut"].any():
        first = int(rows["cut"].to_numpy().argmax()) + 0.5
        area = {"type": "rect", "xref": "x", "x0": first, "x1": len(rows) + 0.5, "yref": "paper", "y0": 0, "y1": 1}
        shapes.append(area | {"fillcolor": theme.AMBER, "opacity": 0.1, "line_width": 0, "layer": "below"})
    return drawn, shapes
