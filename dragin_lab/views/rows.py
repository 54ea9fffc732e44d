"""A text token by token: what is known of each token, as a table, and the heatmap that shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import choice, instance, position
from dragin_lab.drawn import draws
from dragin_lab.errors import SettingError
from dragin_lab.study.whatif import Outcome, Replay
from dragin_lab.text import printable, write_compared
from dragin_lab.trace.kept import list_written
from dragin_lab.trace.trace import Draft, Step, Trace, Words
from dragin_lab.views.facts import num, percent, short

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SOURCES = ("draft", "continuation", "extraction")
LABELLED = 60  # tokens up to which each has its label on the axis
ALTERNATIVES = 4
#: Names and columns of what a score is made of; in the released code it is made of whole words.
PANELS = {"entropy, nats": "entropy", "attention received": "received"}
RELEASED = {
    "entropy of the word, nats": "word_entropy",
    "attention received by the word, over the mean of its sentence": "word_received",
}
CUT = "✂ shaded: thrown away"
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def check_trace(trace: Trace) -> Trace:
    """The trace itself; raises ``SettingError`` for what is none."""
    checked: Trace = instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
    return checked


def show_spaces(text: str) -> str:
    """A token among figures: its white space as signs, right-to-left text isolated from what
    stands around it.
    """
    shown = printable(text).replace("\n", "↵").replace("\t", "⇥") or "∅"
    shown = shown if shown.strip(" ▁Ġ") else "␣"
    return f"\u2068{shown}\u2069" if _RIGHT_TO_LEFT.search(shown) else shown


def threshold_of(trace: Trace) -> float:
    """θ of the trace's method; NaN where it has none."""
    value = trace.method.get("threshold")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)


def unit_of(trace: Trace) -> str:
    """What the trigger compares with θ: each "word", each "sentence", or the "draft"."""
    return str(trace.method.get("unit") or "word")


def measure_of(trace: Trace) -> str:
    """What the trigger's scores are called."""
    return str(trace.method.get("measure") or f"{trace.method.get('when') or 'trigger'} score")


def find_step(trace: Trace, number: int) -> Step:
    """The step with a number, from 1. Raises ``SettingError`` where there is none."""
    return trace.steps[position("step", number, len(trace.steps), "the trace")]


def find_text(
    trace: Trace, step: int | None = None, source: str | None = None
) -> tuple[Step | None, str, Draft]:
    """A text of a trace: its step (None of the extraction), which one it is, and the text itself.

    ``step`` counts from 1; default the first step that retrieved after a draft, else the first with
    a text. ``source`` is "draft", "continuation" or "extraction"; default the first that is there.
    Raises ``SettingError`` where there is none.
    """
    check_trace(trace)
    if source is not None:
        choice("source", source, SOURCES)
    if source == "extraction":
        if trace.extraction is None:
            raise SettingError("this trace has no extraction: the answer was read from its text")
        return None, source, trace.extraction
    steps = trace.steps if step is None else [find_step(trace, step)]
    written = [text for text in list_written(steps) if source in (None, text[1])]
    if not written:
        where = "this trace" if step is None else f"step {step}"
        raise SettingError(f"nothing is written in {where} yet")
    for writer, name, text in written:
        if name == "draft" and writer.query is not None:
            return writer, name, text
    return written[0]


def spread_words(words: Words, n: int) -> pd.DataFrame:
    """What is known of the word of each of n tokens; -1, NaN or False outside of all."""
    import pandas as pd

    word = np.full(n, -1)
    for number, (start, stop) in enumerate(words.spans.tolist()):
        word[start:stop] = number
    of_sentence = pd.Series(words.attention).groupby(words.sentence).transform("mean")
    places = pd.DataFrame({"word": range(len(words)), "sentence": words.sentence})
    spared = words.unjudged & ~words.stop
    flags = pd.DataFrame({"stop_word": words.stop, "spared": spared, "fires": words.hit})
    measured = {
        "compared": words.score,
        "word_entropy": words.entropy,
        "word_received": words.attention / of_sentence,
    }
    parts = [
        places.reindex(word, fill_value=-1),
        flags.reindex(word, fill_value=False),
        pd.DataFrame(measured, dtype=float).reindex(word),
    ]
    return pd.concat(parts, axis=1).reset_index(drop=True)


def token_rows(
    trace: Trace, step: Step | None, source: str, text: Draft, written: int | None = None
) -> pd.DataFrame:
    """A row for each of a text's n tokens, with what figures and pages say of it.

    ``start`` and ``stop`` are its half-open characters without the space that it begins with: a cut
    "before the word" may stand on either side of it. ``compared`` is what the trigger compared with
    θ (of the token's word, sentence or draft), ``mark`` the number of what fired or was judged as a
    whole, ``fires`` whether it fired there (``opens``: the first token that did), ``stop_word`` and
    ``spared`` whether it is of a stop word or may not fire, ``cut`` whether it was thrown away,
    ``unwritten`` whether it comes after the first ``written`` tokens (None: all); ``word``,
    ``sentence`` and ``mark`` are -1 outside of all. ``name`` is what it is called among figures,
    ``about`` all of it in lines. The released code multiplies ``word_entropy`` and
    ``word_received``, which is over the mean of its sentence.
    """
    import pandas as pd

    words = Words()
    peaks = tuple[float, ...]()
    if step is not None and source == "draft":
        words = step.words
        peaks = step.decision.peaks if step.decision is not None else ()
    n = len(text)
    theta = threshold_of(trace)
    unit = unit_of(trace)
    names = []
    starts = []
    for piece, (start, stop) in zip(text.pieces, text.offsets.tolist(), strict=True):
        shown = printable(text.text[start:stop].lstrip(" "))
        starts.append(stop - len(shown) if shown else start)
        names.append(show_spaces(shown.strip(" ") or piece))
    end = None if step is None else step.kept_end(source)
    whole = end is None or end >= len(text.text)
    columns = {
        "start": starts,
        "stop": text.offsets[:, 1],
        "piece": [printable(piece) for piece in text.pieces],
        "name": names,
        "entropy": text.entropy,
        "received": text.received,
        "probability": np.exp(text.logprob),
        "cut": np.zeros(n, bool) if whole else text.offsets[:, 0] >= end,
        "unwritten": np.arange(n) >= (n if written is None else written),
    }
    rows = pd.DataFrame(columns).join(spread_words(words, n))
    judged = rows["word"]  # what fires as one
    rows["mark"] = judged.where(rows["fires"], -1)
    if unit != "word":
        of_peak = rows["sentence"] if len(peaks) != 1 else np.zeros(n, int)
        rows["compared"] = pd.Series(peaks, dtype=float).reindex(of_peak).to_numpy()
        rows["spared"] = False
        rows["fires"] = judged = rows["compared"] > theta
        part = np.isfinite(rows["compared"]) & (rows["start"] < rows["stop"])
        rows["mark"] = np.where(part, 0 if unit == "draft" else rows["sentence"], -1)
    rows["opens"] = rows["fires"] & (judged != judged.shift())
    return rows.assign(about=list(_describe_tokens(rows, text, words, unit, theta)))


def list_alternatives(
    text: Draft, at: int, most: int | None = None
) -> list[tuple[str, float, int]]:
    """The likeliest tokens at a place, as (name, probability, id); [] where they were not kept."""
    if at >= len(text.alternative_ids):
        return []
    ids = text.alternative_ids[at, :most].tolist()
    names: Sequence[str] = [f"id {number}" for number in ids]
    if at < len(text.alternative_tokens):
        names = text.alternative_tokens[at]
    shares = text.alternative_probs[at].tolist()
    listed = zip(map(show_spaces, names), shares, ids, strict=False)
    return list(listed)


def _describe_tokens(
    rows: pd.DataFrame, text: Draft, words: Words, unit: str, theta: float
) -> Iterator[str]:
    """What is known of each token, in lines."""
    flags = {
        "stop_word": "stop word",
        "fires": "◆ HIT",
        "spared": "not judged",
        "cut": "✂ thrown away",
        "unwritten": "not written yet when it was judged",
    }
    for at, row in enumerate(rows.to_dict("records")):
        measures = [
            f"entropy {num(row['entropy'])}",
            f"attention received {num(row['received'])}",
            f"probability {percent(row['probability'])}",
        ]
        lines = [f"{row['name']}   token {at + 1} of {len(rows)}", "   ".join(measures)]
        facts = []
        number = row["word"]
        if number >= 0:
            facts.append(f"word “{show_spaces(words.text[number])}”")
            for name in ("attention", "entropy"):
                value = getattr(words, name)[number]
                if np.isfinite(value):
                    facts.append(f"{name} {num(value)}")
            if np.isfinite(row["compared"]):
                what = "score" if unit == "word" else unit
                facts.append(f"{what} {write_score(row['compared'], theta)}")
        facts += [remark for name, remark in flags.items() if row[name]]
        lines.append("   ".join(facts))
        likeliest = []
        for name, share, _ in list_alternatives(text, at, ALTERNATIVES):
            likeliest.append(f"{name} {percent(share)}")
        if likeliest:
            lines.append(f"likeliest: {' · '.join(likeliest)}")
        yield "\n".join(filter(None, lines))


def write_score(score: float, theta: float) -> str:
    """``0.446 > θ 0.3``; the score alone where there is no θ."""
    if math.isnan(score):
        return "not scored"
    if not (math.isfinite(score) and math.isfinite(theta)):
        return short(score)
    sign = ">" if score > theta else "≤"
    return f" {sign} θ ".join(write_compared(score, theta)).replace("-", "−")


@draws(Trace)
def heatmap(
    trace: Trace, step: int | None = None, source: str | None = None, theta: float | None = None
) -> go.Figure:
    """A text token by token: entropy, attention received, and the trigger's score against θ.

    ◆ stands over what fires, hatched bars may not fire, a shaded stretch was thrown away; the hover
    text has the likeliest alternatives too. ``theta`` judges the stored draft at another threshold,
    by the method's own code. ``step`` and ``source`` as for ``find_text``. Raises ``SettingError``
    for a text that is not there, and for ``theta`` of a method without a threshold.
    """
    writer, name, text = find_text(trace, step, source)
    place = "extraction" if writer is None else f"step {writer.index + 1}, {name}"
    title = f"{trace.question.text} · {place}"
    if theta is None:
        return draw_tokens(trace, token_rows(trace, writer, name, text), title)
    outcome = Replay(trace).at(threshold=theta)
    if writer is not None and name == "draft":
        rows = judged_rows(outcome, writer.index)
    else:
        rows = token_rows(outcome.judged, writer, name, text)
    return draw_tokens(outcome.judged, rows, title)


def judged_rows(outcome: Outcome, at: int) -> pd.DataFrame:
    """``token_rows`` of the stored draft of the step at a position, as other settings judge it.

    The same draft stands there whatever θ is. Attention is what was received when it was judged;
    of tokens not yet written then, what they received in the end.
    """
    judged = outcome.judged
    stored = outcome.trace.steps[at].draft
    assert stored is not None
    then = judged.steps[at].draft or stored
    received = np.append(then.received, stored.received[len(then) :])
    text = replace(stored, received=received)
    own = replace(judged.steps[at], draft=text)
    return token_rows(judged, own, "draft", text, len(then))


def draw_tokens(trace: Trace, rows: pd.DataFrame, title: str) -> go.Figure:
    """``heatmap`` of the rows that ``token_rows`` gives."""
    from dragin_lab.views import theme

    panels = PANELS
    if trace.method.get("variant") == "reference" and rows["word_received"].notna().any():
        panels = RELEASED
    names = [*panels]
    scored = np.isfinite(rows["compared"]).any()
    if scored:
        names.append(f"{measure_of(trace)} of the {unit_of(trace)}")
    rows = rows.assign(place=rows.index + 1, hover=rows["about"].map(theme.label))
    pale = np.where(rows["unwritten"], 0.3, 1.0)
    figure = theme.Figure()
    shared = {"x": rows["place"], "customdata": rows["hover"], "showlegend": False}
    of_panels = zip(panels.values(), ("y", "y2"), (theme.BLUE, theme.PURPLE), strict=True)
    for column, axis, colour in of_panels:
        look = {"color": colour, "opacity": pale}
        figure.add_bar(y=rows[column], yaxis=axis, marker=look, **shared)
    if scored:
        add_scores(figure, rows, threshold_of(trace))
    above = {"xref": "paper", "yanchor": "bottom"}
    axes = ["y", "y2", "y3"][: len(names)]
    for axis, name in zip(axes, names, strict=True):
        theme.write(figure, name, 0, 1, xanchor="left", yref=f"{axis} domain", **above)
    if rows["cut"].any():
        theme.write(figure, CUT, 1, 1, xanchor="right", yref="y domain", **above)
        first = int(rows["cut"].argmax())
        area = {"x0": first + 0.5, "x1": len(rows) + 0.5, "y0": 0, "y1": 1, "opacity": 0.1}
        look = {"type": "rect", "fillcolor": theme.AMBER, "layer": "below", "yref": "paper"}
        figure.add_shape(line_width=0, **look, **area)
    figure.update_xaxes(range=[0.5, max(len(rows), 1) + 0.5], showgrid=False)
    if len(rows) <= LABELLED:
        labels = [theme.clip_label(name, 18) for name in rows["name"]]
        figure.update_xaxes(tickvals=rows["place"], ticktext=labels, tickangle=-60)
    else:
        figure.update_xaxes(title_text="token")
    grid = {"rows": len(names), "columns": 1, "subplots": [[f"x{axis}"] for axis in axes]}
    layout = {"legend": theme.BELOW, "grid": grid | {"ygap": 0.25}, "barmode": "overlay"}
    return theme.finish(figure, title, 150 * len(names) + 130 + 30 * scored, **layout)


def add_scores(figure: go.Figure, rows: pd.DataFrame, theta: float) -> None:
    """The third panel: scores by what became of them, ◆ over what fires, and the line of θ."""
    from dragin_lab.views import theme

    def place(own: pd.DataFrame) -> dict[str, Any]:
        scores = {"y": own["compared"], "yaxis": "y3"}
        return scores | {"x": own["place"], "customdata": own["hover"]}

    known = rows[np.isfinite(rows["compared"])]
    for name, (kind, look) in find_kinds(known, theta).items():
        if kind.any():
            figure.add_bar(name=name, marker=look, showlegend=True, **place(known[kind]))
    gem = {"mode": "text", "text": "◆", "textposition": "top center"}
    figure.add_scatter(showlegend=False, cliponaxis=False, **gem, **place(rows[rows["opens"]]))
    # and room for ◆ over the highest bar, and for the name of θ over its line
    reach = [*known["compared"], theta, 0.0]
    low = np.nanmin(reach)
    top = np.nanmax(reach)
    room = 0.2 * ((top - low) or 1.0)
    figure.update_layout(yaxis3={"range": [low, top + room]})
    if math.isfinite(theta):
        label = {"text": f"θ {theta:g}", "textposition": "end", "yanchor": "bottom"}
        level = {"xref": "x domain", "x0": 0, "x1": 1, "yref": "y3", "y0": theta, "y1": theta}
        figure.add_shape(type="line", line=theme.THETA, label=label, **level)


def find_kinds(rows: pd.DataFrame, theta: float) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The kinds of bars by name: which tokens are of it, each of one alone, and the look."""
    from dragin_lab.views import theme

    exempt = rows["spared"] | rows["stop_word"]
    calm = ~(rows["fires"] | exempt)
    passed = calm & (rows["compared"] > theta)
    grey = {"color": theme.GREY}
    hatched = grey | {"pattern": theme.HATCH | {"shape": "/"}}
    return {
        "◆ fires": (rows["fires"], {"color": theme.AMBER}),
        "does not fire": (calm & ~passed, grey),
        "stop word, or may not fire": (exempt & ~rows["fires"], hatched),
        "above θ, behind the word that fired": (passed, grey | {"line": theme.PASSED}),
    }
