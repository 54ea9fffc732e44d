"""Sections of docs/triggers.md: the corpus, probabilities, calls of the model itself, a trigger of another model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dragin_lab.run.lines import Line, summary
from dragin_lab.study import needs
from dragin_lab.study.reliability import Reliability
from dragin_lab.study.truth import Timing, timing_table
from dragin_lab.views import reliability_diagram
from tools.pages.base import bracketed, markdown_table
from tools.pages.support import IN_TRAINING, support_table, support_views
from tools.pages.transfer import ALMANAC, RIVALS, Test, budget_table, name_of, test_table

#: The triggers whose areas on changed facts are shown beside those that ask the corpus.
BESIDE_CORPUS = (
    "corpus", IN_TRAINING, "search-risk", "rind", "entropy", "max-probability", "capitalised", "rauq",
    "self-certainty", "fitted",
)  # fmt: skip
SAMPLES = 1_000


def exact_match(lines: Sequence[Line]) -> str:
    means = summary(lines)
    return bracketed(means["em"], means["em_low"], means["em_high"])


# -- the corpus -------------------------------------------------------------------------------------------------------


def corpus_section(forced: Sequence[needs.Item], written: Sequence[needs.Item]) -> dict[str, Any]:
    """The table of changed facts, and what it says."""
    columns = {view.title: view.rows(SAMPLES) for view in support_views(forced, written)}
    own = next(of for title, of in columns.items() if title.startswith("own text: changed"))
    asking = ("corpus", IN_TRAINING, "search-risk", *needs.CLOCKS)
    doubting = {n: row for n, row in own.items() if n not in asking and not n.startswith("fitted-")}
    best = max(doubting.values(), key=lambda row: row.area)
    corpus, training = own["corpus"], own[IN_TRAINING]
    sees = "sees" if corpus.low > best.high else "does not clearly see"
    return {
        "table": support_table(columns, BESIDE_CORPUS),
        "changed": sum(item.degree == "changed" for item in written),
        "facts": len(written),
        "verdict": f"In what the model writes by itself, `corpus` {sees} the changed facts better than every trigger "
        f"of the model's own doubt: {_area(corpus)}, against {_area(best)} of `{best.trigger}`, the best of "
        f"{len(doubting)}. With the counts of training it is {_area(training)}: the old value was taught, so nothing "
        "speaks against it. What catches a fact that has changed is the passages that are searched.",
        "rows": [{"trigger": name} | {title: of[name].area for title, of in columns.items()} for name in BESIDE_CORPUS],
    }


def _area(row: needs.Row) -> str:
    return bracketed(row.area, row.low, row.high)


# -- probabilities ----------------------------------------------------------------------------------------------------


def probability_section(
    results: Mapping[str, Mapping[str, Reliability]],
    at_half: Mapping[str, tuple[float | None, Sequence[Line]]],
    folder: Path,
) -> dict[str, Any]:
    """Expected calibration errors by trigger and regression, what θ at p = 0.5 gives, and the picture of the first."""
    rows = []
    for name, (theta, lines) in at_half.items():
        errors = [bracketed(result.ece, result.low, result.high) for result in results[name].values()]
        rows.append((f"`{name}`", *errors, f"{theta:.3g}", f"{summary(lines)['retrievals']:.2f}", exact_match(lines)))
    shown = {name: next(iter(by_regression.values())) for name, by_regression in results.items()}
    (first, *_), some = results.values(), next(iter(shown.values()))
    head = ("trigger", *(f"ECE, {regression}" for regression in first), "θ at p:0.5", "retrievals", "exact match")
    picture = reliability_diagram(shown).save(folder / "triggers-reliability.png")
    return {
        "table": markdown_table(head, rows),
        "picture": picture.name,
        "scores": some.n,
        "questions": some.questions,
        "results": {name: asdict(r) | {"table": r.table.to_dict(orient="list")} for name, r in shown.items()},
    }


# -- calls ------------------------------------------------------------------------------------------------------------


def call_section(calls: Mapping[str, tuple[Timing, Sequence[Line]]]) -> dict[str, Any]:
    """Retrievals that the model asked for itself, beside triggers at one retrieval."""
    table = timing_table({name: timing for name, (timing, _) in calls.items()})
    records: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    rows = [
        (
            f"`{row['method']}`",
            *(row[column] for column in ("retrievals", "in_time", "delayed", "redundant", "missing")),
            f"{row['over_search']:.3f}",
            f"{row['under_search']:.3f}",
            exact_match(lines),
        )
        for row, (_, lines) in zip(records, calls.values(), strict=True)
    ]
    head = ("method", "retrievals judged", "in time", "delayed", "redundant", "missing", "over-search", "under-search")
    return {"table": markdown_table((*head, "exact match"), rows), "rows": records}


# -- a trigger that was fitted on the other model ---------------------------------------------------------------------


def transfer_section(tests: Sequence[Test], answers: Sequence[needs.Item]) -> dict[str, Any]:
    """Fitted on one model and tested on the other: areas, the same share of answers, and whether the goal is met."""
    table, leads = budget_table(answers, name_of(ALMANAC, "default"))
    chosen = [test for test in tests if test.features == "default"]
    ahead = [t.tested_on for t in chosen if all(lead.clear for lead in t.leads.values())]
    others = [t for t in tests if t.features in ("z-scores", "ranks")]
    worse = all(lead.high < 0 for t in others for lead in t.leads.values())
    rivals = " and ".join(f"`{rival}`" for rival in RIVALS)
    models = " and ".join(ahead) or "neither model"
    return {
        "table": test_table(tests),
        "budgets": table,
        "verdict": f"By area, the default features are ahead of {rivals} by intervals clear of 0 on {models}, without "
        "a label of the model that they are tested on. "
        + (
            "Z-scores and ranks within a draft are behind both on both: they drop how large the doubt is, and a draft "
            "without any doubt still has a highest rank."
            if worse
            else "Z-scores and ranks within a draft are not behind both rivals everywhere."
        )
        + f" At the same share of SmolLM2's answers, {sum(lead.clear for lead in leads)} of {len(leads)} differences "
        "are clear of 0.",
        "rows": [
            {"fitted on": t.fitted_on, "tested on": t.tested_on, "features": t.features, "area": t.area.area}
            | {f"minus {rival}": str(lead) for rival, lead in t.leads.items()}
            for t in tests
        ],
    }
