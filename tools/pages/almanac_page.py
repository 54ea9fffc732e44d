"""The page docs/almanac.md from results: tables in Markdown, and a reading of them that people write and runs keep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dragin_lab.almanac.facts import DEGREES, Labelled
from dragin_lab.run.lines import interval_of
from dragin_lab.study import needs
from dragin_lab.study.comparisons import paired
from dragin_lab.study.ranking import precision_recall, roc_area
from tools.pages.base import Row, bracketed, fill_template, keep_reading, markdown_table, rounded
from tools.pages.queries import Asked

SPARING = 1.6  # retrievals per question, at most, of the second DRAGIN
NAMES = {
    "wo-rag": "wo-RAG",
    "sr-rag": "SR-RAG",
    "fl-rag": "FL-RAG",
    "fs-rag": "FS-RAG",
    "flare": "FLARE",
    "dragin": "DRAGIN",
    "dragin-sparing": f"DRAGIN, at most {SPARING:g}",
    "dragin-paper": "DRAGIN, paper variant",
    "flare-paper": "FLARE, paper variant",
}
#: The trigger whose score a method holds against its θ.
TRIGGER_OF = {
    "dragin": "rind-reference",
    "dragin-sparing": "rind-reference",
    "dragin-paper": "rind",
    "flare": "probability-sentence",
    "flare-paper": "probability",
}
SAMPLES = 1_000  # of the questions, for an interval


@dataclass
class Results:
    """Everything the page says."""

    model: Mapping[str, Any]
    passages: int
    pipeline: str
    dev_limit: int
    best: Mapping[str, float]  # trigger -> θ with the best F1 on development's facts
    facts: Sequence[needs.Item]
    sentences: Sequence[needs.Item]
    free: Sequence[needs.Item]
    ends: Sequence[str]  # how the reading of each free text ended
    lost: int  # facts read in texts before they were lost
    asked: Mapping[str, Sequence[Asked]]  # "variant what" -> queries
    top_n: Mapping[str, Mapping[str, int]]  # variant -> what
    words: Mapping[str, int]  # of the queries of DRAGIN's methods
    thetas: Mapping[str, float]
    tried: Mapping[str, Mapping[float, tuple[float, float]]]
    answered: Mapping[str, Mapping[str, Sequence[Row]]]  # benchmark -> method -> rows
    labels: Mapping[str, Labelled]


def write_page(path: Path, found: Results) -> None:
    """Write the page by its template; the reading that stands in the page there is kept."""
    text = fill_template(
        "almanac.md.jinja", reading=keep_reading(path), names=NAMES, sparing=f"{SPARING:g}", model=found.model,
        passages=found.passages, pipeline=found.pipeline, dev_limit=found.dev_limit, lost=found.lost,
        ends=Counter(found.ends), texts=len(found.ends), words=found.words, top_n=found.top_n, thetas=found.thetas,
        asked=sum(len(next(iter(rows.values()))) for rows in found.answered.values()),
        missing_facts=len(next(iter(found.asked.values()))),
        facts=found.facts, sentences=found.sentences, free=found.free,
        **_show_when(found), whats=_show_whats(found), **_show_methods(found),
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")


# -- tables -------------------------------------------------------------------------------------------------------


def _show_when(found: Results) -> dict[str, str]:
    facts, best = found.facts, found.best
    half = [item for item in facts if item.degree != "seldom"]
    own = needs.own_view(facts)
    rows = [
        [
            _trigger(row.trigger),
            bracketed(row.area, row.low, row.high),
            rounded(row.average_precision),
            rounded(_area(half, row.trigger)),
            rounded(_area(own, row.trigger)),
            rounded(_area(own, row.trigger, of_mistakes=True)),
            "" if row.trigger in needs.CLOCKS else f"{row.threshold:.3g}",
            rounded(row.precision),
            rounded(row.recall),
        ]
        for row in needs.when_table(facts, best)
    ]
    areas = ("ROC area", "average precision", "area without half-known", "own view", "own view, own mistakes")
    fired, fired_own = needs.fired_by_degree(facts, best), needs.fired_by_degree(own, best)
    count = Counter(item.degree for item in facts)
    degrees = [degree for degree in DEGREES if count[degree]]
    by_degree = [
        [
            _trigger(name),
            *(rounded(fired[name][degree]) for degree in degrees),
            *(rounded(fired_own[name].get(degree, math.nan)) for degree in ("changed", "never")),
        ]
        for name in needs.triggers_of(facts)
    ]
    at_theta = []
    for method, theta in found.thetas.items():
        name = TRIGGER_OF[method]
        precision, recall = precision_recall(*_arrays(facts, name), theta)
        at_theta.append([NAMES[method], _trigger(name), f"{theta:g}", rounded(precision), rounded(recall)])
    sentences = [
        [_trigger(r.trigger), bracketed(r.area, r.low, r.high), rounded(r.average_precision)]
        for r in needs.when_table(found.sentences, {})
    ]
    free = [
        [
            _trigger(r.trigger),
            bracketed(r.area, r.low, r.high),
            *map(rounded, (r.average_precision, r.precision, r.recall)),
        ]
        for r in needs.when_table(found.free, best)
    ]
    shares = (*(f"{degree} (n = {count[degree]})" for degree in degrees), "changed, own view", "never, own view")
    return {
        "scored": markdown_table(("trigger", *areas, "θ", "precision", "recall"), rows),
        "at_theta": markdown_table(("method", "score", "θ", "precision", "recall"), at_theta),
        "by_degree": markdown_table(("trigger", *shares), by_degree),
        "by_sentence": markdown_table(("trigger", "ROC area", "average precision"), sentences),
        "written": markdown_table(("trigger", "ROC area", "average precision", "precision", "recall"), free),
    }


def _show_whats(found: Results) -> str:
    whats = list(dict.fromkeys(key.split(" ", 1)[1] for key in found.asked))
    whats.sort(key=lambda what: what != "qfs")
    rows = []
    for what in whats:
        line = [what]
        for variant in ("reference", "paper"):
            asked, ours = found.asked[f"{variant} {what}"], found.asked[f"{variant} qfs"]
            recall = [a.recall for a in asked]
            line += [_mean_with(recall), rounded(fmean(a.reciprocal_rank for a in asked) if asked else math.nan)]
            line.append("" if what == "qfs" else _less([a.recall for a in ours], recall))
        rows.append(line)
    columns = [f"{v}: {c}" for v in ("reference", "paper") for c in ("recall@3", "MRR", "QFS minus it")]
    return markdown_table(("formulator", *columns), rows)


def _show_methods(found: Results) -> dict[str, str]:
    keys = list(next(iter(found.answered.values())))
    pooled = {key: [row for rows in found.answered.values() for row in rows[key]] for key in keys}
    blocks = [
        f"### {name} (n = {len(rows[keys[0]])})\n\n{_answers(rows, found.labels)}"
        for name, rows in (("All four", pooled), *found.answered.items())
    ]
    everything = {**found.answered, "all four": pooled}
    differences = [
        [f"{NAMES[ours]} − {NAMES[key]}", *(_difference(by_method, ours, key) for by_method in everything.values())]
        for ours in ("dragin", "dragin-sparing")
        for key in keys
        if key not in ("dragin", "dragin-sparing")
    ]
    tried = [
        [
            NAMES[key],
            " ".join(f"{theta:g}: {em:.2f} ({r:.1f})" for theta, (em, r) in of.items()),
            f"{found.thetas[key]:g}",
        ]
        for key, of in found.tried.items()
    ]
    return {
        "answered": "\n\n".join(blocks),
        "differences": markdown_table(("difference", *everything), differences),
        "tried": markdown_table(("method", "tried", "used"), tried),
    }


def _answers(by_method: Mapping[str, Sequence[Row]], labels: Mapping[str, Labelled]) -> str:
    rows = []
    for key, of in by_method.items():
        known = {k: [r for r in of if labels[r["qid"]].knowledge == k] for k in ("known", "changed", "unknown")}
        calls = f"{_mean(of, 'retrievals'):.2f} ({rounded(_mean(known['known'], 'retrievals'))})"
        em = _mean_with([r["em"] for r in of])
        parts = [rounded(_mean(part, "em")) for part in known.values()]
        share, right = _found(of, labels)
        rows.append([NAMES[key], em, *parts, calls, rounded(share), right, f"{_mean(of, 'tokens'):.0f}"])
    first = next(iter(by_method.values()))
    count = Counter(labels[r["qid"]].knowledge for r in first)
    columns = [f"{k} (n = {count[k]})" for k in ("known", "changed", "unknown")]
    return markdown_table(
        ("method", "exact match", *columns, "retrievals", "found", "exact match where all found", "tokens"), rows
    )


def _found(rows: Iterable[Row], labels: Mapping[str, Labelled]) -> tuple[float, str]:
    """The share of missing facts whose passage was retrieved; and exact match where all of a question's were."""
    hits, right = [], []
    for row in rows:
        got = {passage for passages in row["passages"] for passage in passages}
        each = [fact.passage in got for fact in labels[row["qid"]].facts if fact.missing]
        hits += each
        if each and all(each):
            right.append(row["em"])
    return fmean(hits) if hits else math.nan, f"{fmean(right):.3f} (n = {len(right)})" if right else "–"


def _difference(by_method: Mapping[str, Sequence[Row]], ours: str, theirs: str) -> str:
    return _less(*([r["em"] for r in by_method[key]] for key in (ours, theirs)))


# -- small things -------------------------------------------------------------------------------------------------


def _arrays(items: Sequence[needs.Item], trigger: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([i.scores[trigger] for i in items]), np.array([i.missing for i in items], dtype=bool)


def _area(items: Sequence[needs.Item], trigger: str, *, of_mistakes: bool = False) -> float:
    scores, labels = _arrays(items, trigger)
    return roc_area(scores, np.array([not i.first_choice for i in items], dtype=bool) if of_mistakes else labels)


def _mean(rows: Sequence[Row], name: str) -> float:
    return fmean(row[name] for row in rows) if rows else math.nan


def _trigger(name: str) -> str:
    return f"`{name}`"


def _mean_with(values: Sequence[float]) -> str:
    if not values:
        return "–"
    found = interval_of("em", values)  # and recall: shares of 0 and 1
    return bracketed(found.mean, found.low, found.high)


def _less(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The mean of ours - theirs on the same questions."""
    if not ours:
        return "–"
    found = paired(ours, theirs, scores=True, samples=SAMPLES)
    return bracketed(found.difference, found.low, found.high, sign=True)
