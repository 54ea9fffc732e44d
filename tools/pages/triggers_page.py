"""The page docs/triggers.md and its pictures, from results; a reading that people write is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from dragin_lab.core.trigger import Trigger
from dragin_lab.run.lines import Line, summary
from dragin_lab.study import needs
from dragin_lab.study.benefit import change
from dragin_lab.study.budgets import Frontier
from dragin_lab.study.comparisons import paired
from dragin_lab.study.headroom import ROWS, Headroom
from dragin_lab.study.truth import Timing
from dragin_lab.views import frontier as drawn
from tools.pages.base import bracketed, fill_template, keep_reading, markdown_table, rounded

BUDGETS_SHOWN = (1.0, 1.5)  # retrievals per question
HEADROOM_AT = 1.0
SAMPLES = 1_000  # of the questions, for an interval of an area
#: name on the page -> (formula, what it needs beyond the distribution of each token).
FORMULAS = {
    "rind": ("entropy × attention received, scaled by sentence; stop words out", "a second forward pass, attention"),
    "entropy": ("H", "–"),
    "margin": ("p2 / p1", "–"),
    "attention": ("largest attention received; stop words out", "attention"),
    "trend": ("\\|M_k\\| of H's second difference, over content words", "spaCy's content words"),
    "probability": ("mean 1 − p of the sentence; the rest is written again", "–"),
    "capitalised": ("1 − exp(mean log p) of runs of capitals and numbers", "–"),
    "random": ("a number drawn for each word", "–"),
    "probe": ("w · h + b, fitted as below (Probing-RAG, arXiv 2410.13339)", "hidden states, labelled drafts once"),
    "fitted": ("logistic regression, below", "labelled drafts, once"),
    "prefix-margin": ("mean p2 / p1 of the first 20 tokens, once", "–"),
    "prefix-entropy": ("mean H of the first 20 tokens, once", "–"),
    "etc": ("second difference of H × attention paid; ETC's own loop", "a second forward pass, attention"),
}
#: name on the page -> the score of ``needs`` that it compares with θ, where that has another name.
SCORES = {"etc": "entropy-trend"}


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
    audits: Sequence[Audit] = ()
    thetas: Mapping[str, str] = field(default_factory=dict)  # model -> RIND's at HEADROOM_AT


def write_page(path: Path, found: Results) -> None:
    """Write the page and its pictures; the reading that stands in the page there is kept."""
    (path.parent / "pictures").mkdir(parents=True, exist_ok=True)
    pictures = {}
    for cost, name in (("retrievals", "triggers.png"), ("tokens", "triggers-tokens.png")):
        drawing = drawn(found.frontier, cost=cost)
        pictures[f"against_{cost}"] = drawing.save(path.parent / "pictures" / name).name
    told = found.record["fitted_on"]
    parts = {
        "setting": _setting(found),
        "reading": keep_reading(path),
        "budget": f"{HEADROOM_AT:g}",
        "table": _table(found),
        "without": _exact_of(found.without),
        "oracle": f"{_exact_of(found.oracle)}, {fmean(line['retrievals'] for line in found.oracle):.2f} retrievals",
        "unreached": "\n".join(f"- {said}" for said in found.frontier.unreached) or "Every budget was reached.",
        **pictures,
        "fitted": f"{told['traces']} development drafts with {told['tokens']:,} tokens, {told['missing']:,} of them of "
        "a value that the model could not know; "
        f"ROC area {told['area']:.3f} over tokens of questions left out of the fit",
        "weights": _weights(found.record["terms"]),
        "against": _against_rind(found.frontier),
        "headroom": _headroom(found),
        "retrievals": _retrievals(found),
        "audited": str(found.audits[0].questions) if found.audits else "0",
        "audit": _audit(found.audits),
        "thetas": ", ".join(f"`{model}` {theta}" for model, theta in found.thetas.items()),
    }
    path.write_text(fill_template("triggers.md.jinja", **parts), encoding="utf-8")


def write_tables(path: Path, found: Results) -> None:
    """Write what notebook 10 reads: the frontier, the headroom, and the questions on which the fitted trigger parts."""
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
    areas, own = _areas(found.facts), _areas(needs.own_view(found.facts))
    rows = []
    for name, when in found.methods.items():
        score = SCORES.get(name, name)
        mine = moved[(moved["method"] == name) & (moved["budget"] > 0)]
        runs = max(len(mine), 1)
        rows.append(
            [
                f"`{name}`",
                *FORMULAS[name],
                when.source,
                _interval(areas.get(score)),
                _interval(own.get(score)),
                *(_exact(at[retrievals][name]) for retrievals in BUDGETS_SHOWN),
                rounded(float(mine["transfer"].abs().mean())) if len(mine) else "–",
                _tokens(at[HEADROOM_AT][name]),
                f"{1000 * found.seconds.get(name, math.nan) / (runs * found.questions):.0f}",
            ]
        )
    shown = [f"exact match at {retrievals:g}" for retrievals in BUDGETS_SHOWN]
    head = ("trigger", "formula", "needs", "source", "area, forced", "area, own view", *shown, "transfer error")
    return markdown_table((*head, "tokens at 1", "CPU ms"), rows)


def _by_name(table: Any) -> dict[str, Any]:
    return {row["method"]: row for _, row in table.iterrows()}


def _exact(row: Any) -> str:
    return bracketed(row["em"], row["em_low"], row["em_high"])


def _exact_of(lines: Sequence[Line]) -> str:
    found = summary(lines)
    return bracketed(found["em"], found["em_low"], found["em_high"])


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


def _against_rind(frontier: Frontier) -> str:
    rows = []
    for retrievals in BUDGETS_SHOWN:
        ours, theirs = (frontier.mixed(name, retrievals) for name in ("fitted", "rind"))
        if ours is None or theirs is None:
            rows.append([f"{retrievals:g}", "–", "–"])
            continue
        test = paired(ours, theirs)
        rows.append(
            [f"{retrievals:g}", bracketed(test.difference, test.low, test.high, sign=True), test.p.removeprefix("= ")]
        )
    return markdown_table(("retrievals per question", "exact match, fitted − RIND", "p"), rows)


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
