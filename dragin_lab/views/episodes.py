"""An episode as figures: what was kept and thrown away on one axis of tokens, and what a query was made from."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import plotly.graph_objects as go

from dragin_lab.trace.kept import kept_of, sentence_end, written
from dragin_lab.trace.trace import Draft, Step, Trace
from dragin_lab.trace.words import word_starts
from dragin_lab.views import theme
from dragin_lab.views.html import clip, count, num
from dragin_lab.views.rows import check_trace, find_text, unit_of

FATES = {"kept": theme.TEAL, "thrown away": theme.AMBER, "not decided yet": theme.GREY}
PARTS = {"question": theme.BLUE, "answer so far": theme.TEAL, "draft": theme.PURPLE}
CANDIDATES = 250
PIXELS = 34  # of a step's bar


def timeline(trace: Trace) -> go.Figure:
    """The steps of an episode under each other on one axis of tokens: kept, thrown away (hatched), ◆ a retrieval.

    A bar's hover text is what was written, a diamond's what was asked and found.
    """
    texts: list[tuple[str, str, Draft, Step | None]] = []
    texts += [
        (f"step {step.index + 1}", source, text, step) for step, source, text in written(check_trace(trace).steps)
    ]
    texts += [("extraction", "extraction", trace.extraction, None)] if trace.extraction is not None else []
    if not any(len(text) for _, _, text, _ in texts):
        return theme.message(trace.question.text, "Nothing is written yet.")
    bars: dict[str, list[tuple[int, int, str, str]]] = {fate: [] for fate in FATES}  # start, tokens, step, hover text
    place, retrieved_at = 0, dict[int, int]()
    for name, source, text, step in texts:
        end = len(text.text) if step is None else kept_of(step).of(source)
        kept = len(text) if end is None else int(np.searchsorted(text.offsets[:, 0], end + (end >= len(text.text))))
        parts = {"not decided yet" if end is None else "kept": (0, kept), "thrown away": (kept, len(text))}
        for fate, (start, stop) in parts.items():
            if start < stop:
                body = text.text[int(text.offsets[start, 0]) : int(text.offsets[stop - 1, 1])]
                about = f"{name}, {source}, {fate}: {count(stop - start, 'token')}<br>{_wrap(body)}"
                bars[fate].append((place + start, stop - start, name, about))
        if step is not None:  # passages come in behind the draft, or before all that the step wrote
            retrieved_at.setdefault(step.index, place + len(text) * (source == "draft"))
        place += len(text)
    figure = go.Figure()
    for fate, own in bars.items():
        if own:
            starts, sizes, names, abouts = zip(*own, strict=True)
            figure.add_bar(
                orientation="h", base=starts, x=sizes, y=names, name=fate, customdata=abouts,
                marker={"color": FATES[fate], "pattern": theme.HATCH | {"shape": "" if fate == "kept" else "/"}},
                hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
    searches = [step for step in trace.steps if step.query is not None]
    figure.add_scatter(
        x=[retrieved_at.get(step.index, 0) for step in searches],
        y=[f"step {step.index + 1}" for step in searches],
        mode="markers", name="◆ retrieval", customdata=[_describe_retrieval(step) for step in searches],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"symbol": "diamond", "size": 14, "color": theme.BLUE, "line": {"color": "#ffffff", "width": 1}},
    )  # fmt: skip
    rows = list(dict.fromkeys(name for name, *_ in texts))
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=rows)
    figure.update_xaxes(title_text="tokens written")
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom"}
    height = 170 + PIXELS * len(rows)
    return theme.finish(figure, trace.question.text, height, barmode="overlay", legend=legend)


def _wrap(text: str, limit: int = 600, width: int = 90) -> str:
    shown = "".join(clip(text.strip(), limit))
    return "<br>".join(theme.label(shown[i : i + width]) for i in range(0, len(shown), width))


def _describe_retrieval(step: Step) -> str:
    assert step.query is not None
    why = [_wrap(step.decision.reason)] if step.decision is not None else []
    passages = [f"{rank}. {theme.clip_label(p.title or p.id, 80)}" for rank, p in enumerate(step.passages[:5], 1)]
    return "<br>".join([*why, f"⌕ {_wrap(step.query.sent or '(empty query)')}", *(passages or ["nothing was found"])])


def selections(trace: Trace, step: int | None = None) -> go.Figure:
    """What a step's query was made from: every candidate word with the attention that the hit paid to it (§3.2).

    Full bars with ✓ were chosen, hatched ones were not; colours and the text under the axis name the part of the text.
    ``step`` counts from 1; default the first that retrieved. Raises ``SettingError`` for a step that is not there.
    """
    if not any(own.query is not None for own in check_trace(trace).steps):
        return theme.message(trace.question.text, "This episode retrieved nothing, so there is no query.")
    retrieved = next(own for own in trace.steps if own.query is not None)
    own = retrieved if step is None else find_text(trace, step)[0]
    assert own is not None
    title = f"Step {own.index + 1} asks: {own.query.text if own.query is not None else 'nothing'}"
    if own.query is None or not len(own.query.words):
        reason = f"Query formulator {trace.method.get('what', '?')!r} does not weigh words by attention."
        return theme.message(title, reason if own.query is not None else f"Step {own.index + 1} retrieved nothing.")
    query, left = own.query, max(len(own.query.words) - CANDIDATES, 0)
    rows = [
        (part, word, float(weight), bool(chosen))
        for part, word, weight, chosen in zip(
            find_parts(trace, own), query.words, query.weights, query.chosen, strict=True
        )
    ][left:]
    figure = go.Figure()
    for part, colour in PARTS.items():
        for chosen in (True, False):
            inside = [(place, *row) for place, row in enumerate(rows) if (row[0], row[3]) == (part, chosen)]
            pattern = theme.HATCH | {"shape": "" if chosen else "/"}
            figure.add_bar(
                x=[place for place, *_ in inside], y=[weight for _, _, _, weight, _ in inside],
                name=f"{part}, {'✓ chosen' if chosen else 'not chosen'}", showlegend=bool(inside),
                text="✓" if chosen else "", textposition="outside", cliponaxis=False,
                marker={"color": colour, "opacity": 1 if chosen else 0.55, "pattern": pattern},
                customdata=[f"{theme.label(word)} · {part} · {num(weight)}" for _, _, word, weight, _ in inside],
                hovertemplate="%{customdata}<extra></extra>",
            )  # fmt: skip
    edges = [place for place, (a, b) in enumerate(pairwise(rows), 1) if a[0] != b[0]]
    for edge in edges:
        figure.add_vline(edge - 0.5, line_color=theme.GRID)
    figure.update_xaxes(
        tickvals=list(range(len(rows))), ticktext=[theme.clip_label(word, 20) for _, word, *_ in rows], tickangle=-60,
        showgrid=False,
    )  # fmt: skip
    hit = "the hit" if unit_of(trace) == "word" else f"the words that stand for the {unit_of(trace)}"
    figure.update_yaxes(title_text=f"attention from {hit}")
    whole = count(len(query.words), "candidate")
    fit = f"all {whole} fit, nothing was selected" if query.chosen.all() else f"{query.chosen.sum()} of {whole} chosen"
    figure.update_xaxes(title_text=fit + (f"; {count(left, 'earlier word')} left out" if left else ""))
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom"}
    return theme.finish(figure, title, 400, barmode="overlay", legend=legend)


def find_parts(trace: Trace, step: Step) -> list[str]:
    """The part of the text that each candidate of a query stands in; candidates are in text order, hits are none."""
    before = trace.steps[step.index - 1].answer if step.index else ""
    texts = {"question": trace.question.text, "answer so far": before, "draft": _read_draft(trace, step)}
    words = [
        (part, text[a:b].strip())
        for part, text in texts.items()
        for a, b in pairwise([*sorted(word_starts(text)), len(text)])
    ]
    parts: list[str] = []
    place = 0
    assert step.query is not None
    for word in step.query.words:
        match = next((i for i in range(place, len(words)) if words[i][1] == word), None)
        place = place if match is None else match + 1
        parts.append(words[match][0] if match is not None else parts[-1] if parts else "question")
    return parts


def _read_draft(trace: Trace, step: Step) -> str:
    """The draft up to its cut; the released code also reads the rest of the sentence that fired."""
    draft, decision = step.draft, step.decision
    if draft is None or decision is None:
        return ""
    end = len(draft.text) if decision.cut is None else decision.cut
    if trace.method.get("variant") == "reference":
        end = max(end, sentence_end(step, decision.sentence, end) or len(draft.text))
    return draft.text[:end]
