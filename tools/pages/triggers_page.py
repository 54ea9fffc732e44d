"""The page docs/triggers.md and its pictures, from results; a reading that people write is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from dragin_lab.core.trigger import Trigger
from dragin_lab.run.lines import Line
from dragin_lab.study import needs
from dragin_lab.study.benefit import change
from dragin_lab.study.budgets import BUDGETS, Frontier
from dragin_lab.study.comparisons import paired
from dragin_lab.study.headroom import ROWS, Headroom
from dragin_lab.study.reliability import Reliability
from dragin_lab.study.truth import Timing
from dragin_lab.views import frontier as drawn
from tools.pages.base import bracketed, fill_template, keep_reading, markdown_table, rounded
from tools.pages.transfer import ELSEWHERE, RIVALS, Test
from tools.pages.triggers_sections import (
    call_section,
    corpus_section,
    exact_match,
    probability_section,
    transfer_section,
)

BUDGETS_SHOWN = (1.0, 1.5)  # retrievals per question
HEADROOM_AT = 1.0
SAMPLES = 1_000  # of the questions, for an interval of an area
#: name on the page -> (formula, what it needs beyond the distribution of each token).
FORMULAS = {
    "rind": ("entropy × attention received; stop words out", "attention"),
    "entropy": ("H", "–"),
    "margin": ("p2 / p1", "–"),
    "attention": ("largest attention received; stop words out", "attention"),
    "probability": ("1 − p", "–"),
    "capitalised": ("1 − exp(mean log p) of runs of capitals and numbers", "–"),
    "random": ("a number drawn for each word", "–"),
    "max-probability": ("Σ −log p of the sentence", "–"),
    "perplexity": ("mean −log p of the sentence", "–"),
    "rauq": ("mean −log of p carried on by a(t, t−1), by layer", "attention of a third of the layers"),
    "renyi-2": ("−log Σ p²", "–"),
    "fisher-rao": ("1 − (2/π) arccos(Σ √p / √V), at temperature 2; `renyi` ranks alike", "–"),
    "self-certainty": ("mean over V of log p, + log V", "–"),
    "attention-score": ("−Σ log a(t, t) of the sentence", "attention of the middle layer"),
    "corpus": ("passages with the sentence's names together, graded", "counts of the index"),
    "search-risk": ("entropy of the scores for “What is NAME?”", "a search for each name"),
    "probe": ("w · h + b, fitted as below (Probing-RAG, arXiv 2410.13339)", "hidden states, labelled drafts once"),
    "fitted": ("logistic regression, below", "labelled drafts, once"),
    "fitted-smollm2": ("the same, fitted on SmolLM2's answers", "right and wrong answers of another model"),
    "prefix-margin": ("mean p2 / p1 of the first 20 tokens, once", "–"),
    "prefix-entropy": ("mean H of the first 20 tokens, once", "–"),
    "corpus-question": ("mean count of the question's names, once", "counts of the index"),
    "etc": ("\\|M_k\\| of H's second difference, over content words", "spaCy's content words"),
}
#: name on the page -> the score of ``needs`` that it compares with θ, where that has another name.
SCORES = {"etc": "entropy-trend"}
#: Those in the pictures, as more lines cannot be told apart.
DRAWN = (
    "rind",
    "entropy",
    "margin",
    "max-probability",
    "capitalised",
    "corpus",
    "etc",
    "fitted",
    "fitted-smollm2",
    "random",
)


@dataclass(frozen=True)
class Audit:
    """RIND as released, on one model with one space marker, at one θ."""

    model: str
    marker: str
    right: bool  # whether that is the vocabulary's own
    questions: int
    words: float  # of a draft, as the code cuts it
    written: float  # of a draft, between white space
    fired: float  # share of drafts
    retrievals: float
    em: float


@dataclass(frozen=True)
class Results:
    """Everything the page says."""

    model: Mapping[str, Any]
    pipeline: str
    questions: int
    dev_questions: int
    methods: Mapping[str, Trigger]
    frontier: Frontier
    without: Sequence[Line]
    oracle: Sequence[Line]
    timings: Mapping[str, Timing]  # at HEADROOM_AT, as the next two
    at_budget: Mapping[str, Sequence[Line]]
    headrooms: Mapping[str, Headroom]
    facts: Sequence[needs.Item]
    record: Mapping[str, Any]  # of the fitted trigger
    seconds: Mapping[str, float]  # CPU seconds over all budgets
    real: Mapping[str, needs.Row]  # areas on SmolLM2's single facts
    tests: Sequence[Test]  # fitted on one model, tested on the other
    real_test: Sequence[needs.Item]  # the answers of SmolLM2 that nothing was fitted on
    support: tuple[Sequence[needs.Item], Sequence[needs.Item]]  # facts of gold reasonings, and of the model's texts
    reliability: Mapping[str, Mapping[str, Reliability]]  # by trigger and regression
    by_probability: Mapping[str, tuple[float | None, Sequence[Line]]]  # θ at p = 0.5, and what it answers
    calls: Mapping[str, tuple[Timing, Sequence[Line]]]
    audits: Sequence[Audit] = ()
    thetas: Mapping[str, str] = field(default_factory=dict)  # model -> RIND's at HEADROOM_AT


def write_page(path: Path, found: Results, single: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the page and its pictures; the reading that stands in the page there is kept."""
    (path.parent / "pictures").mkdir(parents=True, exist_ok=True)
    pictures = {}
    drawn_points = Frontier(tuple(point for point in found.frontier.points if point.name in DRAWN))
    for cost, name in (("retrievals", "triggers.png"), ("tokens", "triggers-tokens.png")):
        drawing = drawn(drawn_points, cost=cost)
        pictures[f"against_{cost}"] = drawing.save(path.parent / "pictures" / name).name
    fitted_on = found.record["fitted_on"]
    parts = {
        "setting": _setting(found),
        "reading": keep_reading(path),
        "budget": f"{HEADROOM_AT:g}",
        "table": _table(found),
        "formulas": _formula_table(found.methods),
        "without": exact_match(found.without),
        "oracle": f"{exact_match(found.oracle)}, {fmean(line['retrievals'] for line in found.oracle):.2f} retrievals",
        "unreached": "\n".join(f"- {said}" for said in found.frontier.unreached) or "Every budget was reached.",
        **pictures,
        "fitted": f"{fitted_on['traces']} development drafts with {fitted_on['tokens']:,} tokens, "
        f"{fitted_on['missing']:,} of them of a value that the model could not know; ROC area {fitted_on['area']:.3f} "
        "over tokens of questions left out of the fit",
        "weights": _weights(found.record["terms"]),
        "against": _against_rivals(found.frontier),
        "headroom": _headroom(found),
        "retrievals": _retrievals(found),
        "audited": str(found.audits[0].questions) if found.audits else "0",
        "audit": _audit(found.audits),
        **single,
        "silent": [name for name, lines in found.at_budget.items() if not any(line["retrievals"] for line in lines)],
        "thetas": ", ".join(f"`{model}` {theta}" for model, theta in found.thetas.items()),
    }
    path.write_text(fill_template("triggers.md.jinja", **parts), encoding="utf-8")


def make_sections(found: Results, pictures: Path) -> dict[str, dict[str, Any]]:
    """What the sections on single questions say, as text and as rows; ``pictures`` is the folder of their picture."""
    pictures.mkdir(parents=True, exist_ok=True)
    return {
        "corpus": corpus_section(*found.support),
        "probability": probability_section(found.reliability, found.by_probability, pictures),
        "calls": call_section(found.calls),
        "transfer": transfer_section(found.tests, found.real_test),
    }


def write_tables(path: Path, found: Results, single: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what notebook 10 reads: the frontier, the headroom, the questions on which the fitted trigger parts, …"""
    rooms = {
        name: {"rows": [row | {"method": label} for label, row in zip(ROWS, _records(room.table), strict=True)]}
        | {"parts": room.parts}
        for name, room in found.headrooms.items()
    }
    right = {name: {line["qid"]: line["em"] for line in lines} for name, lines in found.at_budget.items()}
    parting = [qid for qid, em in right.get("fitted", {}).items() if em != right["rind"][qid]]
    points = {f"{n:g}": _records(found.frontier.at(n)) for n in BUDGETS_SHOWN}
    record = {"questions": found.questions, "model": found.model["weights_sha256"], "variant": "paper"}
    record |= {"frontier": _records(found.frontier.table), "at": points, "headroom": rooms, "parting": parting}
    for name, section in single.items():
        record[name] = {key: section[key] for key in ("rows", "results") if key in section}
    record["triggers"] = [
        {"trigger": name, "almanac": almanac and almanac.area, "smollm2": real and real.area}
        for name, almanac, real in _both_areas(found)
    ]
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _records(table: Any) -> list[dict[str, Any]]:
    """The rows of a table as plain data; None where it has NaN."""
    found: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=6))
    return found


def _setting(found: Results) -> str:
    rows = [
        ("model", f"`{found.model['model']}`, weights `{found.model['weights_sha256'][:12]}`, {found.model['dtype']}"),
        ("loop", "DRAGIN's, paper variant"),
        ("questions", f"{found.questions} test questions of Almanac"),
        ("thresholds, and the fitted trigger", f"{found.dev_questions} development questions"),
        ("sentences, content words", found.pipeline),
        ("brackets", "95 % intervals over questions: Wilson where values are 0 or 1, else bootstrap"),
    ]
    return markdown_table(("", ""), rows)


# -- the table --------------------------------------------------------------------------------------------------------


def _table(found: Results) -> str:
    at = {retrievals: _by_name(found.frontier.at(retrievals)) for retrievals in BUDGETS_SHOWN}
    moved = found.frontier.table
    areas, both = _areas(found.facts), {name: areas for name, *areas in _both_areas(found)}
    rows = []
    for name in found.methods:
        own, real = both[name]
        mine = moved[(moved["method"] == name) & (moved["budget"] > 0)]
        runs = max(len(mine), 1)
        rows.append(
            [
                f"`{name}`",
                _interval(areas.get(SCORES.get(name, name))),
                _interval(own),
                _interval(real),
                *(_exact(at[retrievals][name]) for retrievals in BUDGETS_SHOWN),
                rounded(float(mine["transfer"].abs().mean())) if len(mine) else "–",
                _tokens(at[HEADROOM_AT][name]),
                f"{1000 * found.seconds.get(name, math.nan) / (runs * found.questions):.0f}",
            ]
        )
    shown = [f"exact match at {retrievals:g}" for retrievals in BUDGETS_SHOWN]
    head = ("trigger", "area, forced", "area, own view", "area, SmolLM2", *shown, "transfer error")
    return markdown_table((*head, "tokens at 1", "CPU ms"), rows)


def _formula_table(methods: Mapping[str, Trigger]) -> str:
    rows = [(f"`{name}`", *FORMULAS[name], trigger.source) for name, trigger in methods.items()]
    return markdown_table(("trigger", "formula", "needs beyond p", "source"), rows)


def _both_areas(found: Results) -> list[tuple[str, needs.Row | None, needs.Row | None]]:
    """Of each trigger its name, its area on Almanac in its own view, and that on SmolLM2's single facts."""
    own = _areas(needs.own_view(found.facts))
    names = found.methods
    return [(name, own.get(SCORES.get(name, name)), found.real.get(SCORES.get(name, name))) for name in names]


def _by_name(table: Any) -> dict[str, Any]:
    return {row["method"]: row for _, row in table.iterrows()}


def _exact(row: Any) -> str:
    return bracketed(row["em"], row["em_low"], row["em_high"])


def _tokens(row: Any) -> str:
    return "–" if math.isnan(row["tokens"]) else f"{row['tokens']:.0f}"


def _areas(items: Sequence[needs.Item]) -> dict[str, needs.Row]:
    return {row.trigger: row for row in needs.when_table(items, {}, samples=SAMPLES)}


def _interval(row: needs.Row | None) -> str:
    return "–" if row is None else bracketed(row.area, row.low, row.high)


# -- the fitted trigger, headroom, single retrievals ------------------------------------------------------------------


def _weights(terms: Sequence[Mapping[str, Any]]) -> str:
    ranked = sorted(terms, key=lambda term: -abs(term["weight"]))
    rows = [(term["feature"], f"{term['weight']:+.2f}") for term in ranked]
    return markdown_table(("feature", "weight, per standard deviation"), rows)


def _against_rivals(frontier: Frontier) -> dict[str, str]:
    """Exact match of the fitted triggers minus that of RIND and of entropy, at each budget, and what that says."""
    rows, sentences = [], []
    for name, rival in product(("fitted", ELSEWHERE), RIVALS):
        pairs = {n: [frontier.mixed(one, n) for one in (name, rival)] for n in BUDGETS}
        tests = {n: paired(*pair) for n, pair in pairs.items() if pair[0] is not None and pair[1] is not None}
        cells = [bracketed(t.difference, t.low, t.high, sign=True) for t in tests.values()]
        rows.append([f"`{name}` − `{rival}`", *cells, *["–"] * (len(BUDGETS) - len(cells))])
        if name == ELSEWHERE:
            ahead = ", ".join(f"{n:g}" for n, test in tests.items() if test.low > 0) or "no budget"
            behind = ", ".join(f"{n:g}" for n, test in tests.items() if test.high < 0) or "no budget"
            sentences.append(f"ahead of `{rival}` at {ahead} and behind it at {behind}")
    same, asked = _count_same(frontier, "fitted", ELSEWHERE)
    return {
        "table": markdown_table(("difference", *(f"exact match at {n:g}" for n in BUDGETS)), rows),
        "verdict": f"By intervals clear of 0, `{ELSEWHERE}` is {'; '.join(sentences)}. It gives the same answers as "
        f"`fitted` in {same} of {asked} cases, budgets times questions.",
    }


def _count_same(frontier: Frontier, first: str, second: str) -> tuple[int, int]:
    """How many texts two methods have in common at the same budgets, and of how many."""
    texts = {
        name: [
            line["text"]
            for point in frontier.points
            if point.name == name and point.budget
            for line in point.predictions
        ]
        for name in (first, second)
    }
    pairs = list(zip(texts[first], texts[second], strict=True))
    return sum(a == b for a, b in pairs), len(pairs)


def _headroom(found: Results) -> str:
    blocks = []
    for name, room in found.headrooms.items():
        lines = [line for _, line in room.table.iterrows()]
        rows = [[row, _exact(line), f"{line['retrievals']:.2f}"] for row, line in zip(ROWS, lines, strict=True)]
        parts = ", ".join(f"{part} {value:+.3f}" for part, value in room.parts.items())
        body = markdown_table(("when x what", "exact match", "retrievals"), rows)
        title = f"### `{name}`, calibrated to {HEADROOM_AT:g} retrieval"
        blocks.append(f"{title}\n\n{body}\n\nRemaining gap: {parts}.")
    return "\n\n".join(blocks)


def _retrievals(found: Results) -> str:
    rows = []
    for name, lines in found.at_budget.items():
        told, made = found.timings[name], change(lines, found.without)
        gain = "–" if made.gain is None else bracketed(made.gain.mean, made.gain.low, made.gain.high, sign=True)
        when = (told.in_time, told.delayed, told.redundant, told.missing)
        rows.append([f"`{name}`", *when, made.asked, made.helped, made.harmed, gain])
    head = (
        "trigger",
        "in time",
        "delayed",
        "redundant",
        "missing",
        "retrieved for",
        "wrong to right",
        "right to wrong",
    )
    return markdown_table((*head, "gain"), rows)


# -- the audit --------------------------------------------------------------------------------------------------------


def _audit(audits: Sequence[Audit]) -> str:
    rows = []
    for one in audits:
        marker = f"`{one.marker}`" + ("" if one.right else ", not its own")
        shown = (f"{one.words:.1f}", f"{one.written:.1f}", f"{one.fired:.2f}", f"{one.retrievals:.2f}", f"{one.em:.3f}")
        rows.append([f"`{one.model}`", marker, *shown])
    head = ("model", "space marker", "words that the code sees", "words written", "share of drafts that fire")
    return markdown_table((*head, "retrievals", "exact match"), rows)
