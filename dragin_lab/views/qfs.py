"""The QFS view: from the hit, the words it attended to, in the text itself; the query made of them; what it found."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from pathlib import Path

from dragin_lab.core.labels import Labelled
from dragin_lab.core.trace import Step, Trace
from dragin_lab.views import sections
from dragin_lab.views.frame import View, draw, head, prefix
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import attempt, clip, clipped, count, esc, num, row, soft, tag
from dragin_lab.views.pieces import GEM
from dragin_lab.views.selections import Token, tokens, wanted
from dragin_lab.views.step import Canvas, ask_box, passages_list

MAX_RETRIEVALS = 40
WORDS = 400  # of one text
PARTS = {"question": "question", "answer": "answer so far", "draft": "draft"}


def selections(trace: Trace | str | Path, *, gold: Labelled | Iterable[str] | None = None) -> View:
    """Every retrieval of a trace: what its query was made from, word by word, and what it found.

    ``gold`` says which passages hold what was needed: the question's labels (``labels.load_labels``) or the ids of the
    passages. A path that holds no readable trace gives its message in place. Raises ``SettingError`` for the labels of
    another question.
    """
    known = gold if gold is None or isinstance(gold, str | Labelled) else tuple(gold)
    if isinstance(trace, Trace):
        wanted(trace, known)
    return draw("query", trace, partial(_card, gold=known), partial(_text, gold=known), ("qfs",))


def _retrieving(trace: Trace) -> list[Step]:
    return [step for step in trace.steps if step.query is not None]


def _card(trace: Trace, gold: Labelled | Iterable[str] | None) -> str:
    need = wanted(trace, gold)
    canvas = Canvas(trace, scale_of(trace), prefix(trace, "query"), {}, rows=0, twice=False, gold=frozenset(need))
    steps = _retrieving(trace)
    parts = [head(trace), _legend()]
    for step in steps[:MAX_RETRIEVALS]:
        number = step.index + 1
        reason = step.decision.reason if step.decision is not None else ""
        parts.append(
            f'<div class="bar" id="{canvas.prefix}-s{number}"><b>Step {number}</b>'
            f'<span class="kind-retrieved"><b>◆ retrieved</b></span> <bdi>{clipped(reason, 300)}</bdi></div>'
        )
        for title, says, render in (
            ("Looked at", "what the query could be made of", partial(_source, trace, step)),
            ("Query", "what it asked", partial(_query, step)),
            ("Passages", "what it found", partial(passages_list, canvas, step)),
            ("Gold passages", "where what was needed stood", partial(_gold, trace, step, need)),
        ):
            inner = attempt(f"{title} of step {number}", render, lambda: "")
            parts.append(row(title.split()[0].lower(), title, says, inner))
    if not steps:
        said = (
            "No retrieval yet." if trace.ended == "running" else "This episode retrieved nothing, so there is no query."
        )
        parts.append(row("query", "Query", "", soft(said)))
    if len(steps) > MAX_RETRIEVALS:
        more = count(len(steps) - MAX_RETRIEVALS, "more retrieval")
        parts.append(f'<p class="head more">… {more}; trace.retrievals has them all</p>')
    return "".join(parts)


def _legend() -> str:
    return (
        '<div class="legend" data-part="legend"><span><b>✓ word</b> chosen for the query</span>'
        '<span><i class="key"></i> bar and number: attention from the hit</span>'
        f'<span><mark class="hit">{GEM}hit</mark> lacks information</span>'
        '<span class="soft">grey: no candidate</span></div>'
    )


def _source(trace: Trace, step: Step) -> str:
    words, lost = tokens(trace, step)
    top = max((t.weight for t in words if t.weighed and math.isfinite(t.weight)), default=0.0)
    out, drawn = [], 0
    for part, group in groupby(words, key=lambda t: t.part):
        inside = list(group)
        # The end stands nearest to the hit, so a long text is cut at its start.
        room = max(WORDS - drawn, 0) if part != "draft" else WORDS
        shown = inside[len(inside) - room :] if len(inside) > room else inside
        drawn += len(shown)
        rest = (
            f'<span class="more">{count(len(inside) - len(shown), "earlier word")} …</span> '
            if len(shown) < len(inside)
            else ""
        )
        body = " ".join(_word(t, top) for t in shown)
        out.append(f'<dt>{PARTS[part]}</dt><dd class="words" dir="auto">{rest}{body}</dd>')
    said = []
    if not any(t.weighed for t in words):
        what = trace.method.get("what", "?")
        said.append(f"This query was not made by attention (what: {what}), so no word has a weight.")
    if lost:
        said.append(f"Not found in the text: {clip(' '.join(lost), 300)[0]}.")
    return f'<dl class="duo">{"".join(out)}</dl>{"".join(map(soft, said))}'


def _word(token: Token, top: float) -> str:
    text = esc(token.text)
    if token.hit:
        mark = f'<mark class="hit{" fired" * token.fired}">{GEM}<bdi class="vh">hit: </bdi>{text}</mark>'
        return f"<i>{mark}</i>"
    if not token.weighed:
        return f'<i class="soft">{text}</i>'
    share = token.weight / top if top > 0 and math.isfinite(token.weight) else 0.0
    name, sign = ("yes", '<bdi class="vh">chosen: </bdi>') if token.chosen else ("no", "")
    return f'<i class="{name}" style="--w:{share:.2g}">{sign}{text}<small>{num(token.weight)}</small></i>'


def _query(step: Step) -> str:
    query = step.query
    assert query is not None
    chosen = f"{int(query.chosen.sum())} of {count(len(query.words), 'candidate')} chosen." if query.words else ""
    return ask_box(query) + (soft(chosen) if chosen else "")


def _gold(trace: Trace, step: Step, need: dict[str, str]) -> str:
    ranks = {p.id: rank for rank, p in enumerate(step.passages, 1)}
    if not need:
        holding = [str(ranks[p.id]) for p in step.passages if sections.holds_gold(p, trace.question.golds)]
        if holding:
            return soft(f"Not labelled; a gold answer stands in passage {', '.join(holding)}.")
        if trace.question.golds:
            return soft("Not labelled; none of the passages holds a gold answer.")
        return soft("Not known: neither labels nor gold answers were given.")
    items = []
    for name, states in need.items():
        rank = ranks.get(name)
        where = tag(f"★ rank {rank}", "ok") if rank else tag(f"not among the {len(step.passages)} found")
        said = clipped(states or "passage", 300)
        items.append(f'<li>{where}<span dir="auto">{said}</span> <small>id <bdi>{esc(name)}</bdi></small></li>')
    return f'<ul class="gold">{"".join(items)}</ul>'


# -- text -------------------------------------------------------------------------------------------------------------


def _text(trace: Trace, gold: Labelled | Iterable[str] | None) -> str:
    need = wanted(trace, gold)
    out = [f"Question      {trace.question.text}", f"Answer        {trace.answer or sections.no_answer(trace)}"]
    for step in _retrieving(trace)[:MAX_RETRIEVALS]:
        query = step.query
        assert query is not None
        out.append(f"\nStep {step.index + 1}: {step.decision.reason if step.decision is not None else 'retrieved'}")
        words, _ = tokens(trace, step)
        for part, group in groupby(words[-WORDS:], key=lambda t: t.part):
            out.append(f"{PARTS[part]:<13} {' '.join(map(_plain, group))}")
        out.append(f"{'query':<13} {query.text}")
        for rank, p in enumerate(step.passages, 1):
            star = "  ★ gold passage" if p.id in need else ""
            out.append(f"{rank:>12}. {p.title or '(no title)'}  score {num(p.score, 2)}{star}")
        missing = [name for name in need if name not in {p.id for p in step.passages}]
        if missing:
            out.append(f"{'not found':<13} {', '.join(missing)}")
    if not _retrieving(trace):
        out.append("no retrieval")
    return "\n".join(out) + "\n"


def _plain(token: Token) -> str:
    if token.hit:
        return f"⟦{token.text}⟧"
    return f"{'✓' if token.chosen else ''}{token.text}({num(token.weight)})" if token.weighed else token.text
