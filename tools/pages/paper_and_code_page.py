"""The page docs/paper-and-code.md: the template's prose, every figure in it put there from results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dragin_lab.core.sentences import load_pipeline
from dragin_lab.run.lines import interval_of
from dragin_lab.study.comparisons import bootstrap_statistic, paired
from dragin_lab.study.ranking import roc_area
from tools.pages.base import Row, bracketed, markdown_table, rounded
from tools.pages.variants_rind import TRIGGERS
from tools.pages.variants_scores import RULES, rescored
from tools.pages.variants_swaps import SWAPPED, whats

Interval = tuple[float, float, float]  # value, low, high
MARK = re.compile(r"\{\{([^{}]+)\}\}")
#: FLARE's way to score that is measured on labels: number on the page, base, the other, what to call it.
FLARE_WHEN = ("F3", "flare", "flare: any token", "FLARE, any token, not the mean")
SAMPLES = 1_000  # draws of questions for areas and recalls, of which a question has several items
NO_LABELS = "needs Almanac's labels, which these questions have not"


@dataclass
class Results:
    """Everything the page says."""

    about: Mapping[str, Any]
    dev_limit: int  # development questions a benchmark that θ was chosen on; 0: it was not chosen
    thetas: Mapping[str, float | None]  # run -> θ
    when: Sequence[Row]
    what: Mapping[str, Sequence[Row]]
    runs: Mapping[str, Mapping[str, Sequence[Row]]]  # run -> source -> predictions
    kinds: Mapping[str, str]  # source -> the rule that its answers are read by
    _differences: dict[tuple[str, str], Interval] = field(default_factory=dict)  # each is said in several places

    def flat(self, run: str) -> list[Row]:
        """The predictions of a run over all benchmarks, in one order for every run."""
        return [row for rows in self.runs[run].values() for row in rows]

    @property
    def labelled(self) -> bool:
        return bool(self.when)

    # -- figures ------------------------------------------------------------------------------------------------------

    @cached_property
    def areas(self) -> dict[tuple[str, str], Interval]:
        """(score, facts or sentences) -> ROC area."""
        names = self.when[0]["facts"][0]["scores"] if self.when else ()
        return {(name, of): self._area(of, lambda s: roc_area(*s), name) for name in names for of in _ITEMS}

    def area_difference(self, score: str, base: str) -> Interval:
        """Of sentences, which is what a method decides on."""
        if (score, base) not in self._differences:
            found = self._area("sentences", lambda s: roc_area(s[0], s[-1]) - roc_area(s[1], s[-1]), score, base)
            self._differences[score, base] = found
        return self._differences[score, base]

    def _area(self, of: str, statistic: Any, *names: str) -> Interval:
        """A statistic of scores (m,), one array a name, and labels (m,) behind them; questions are drawn whole."""
        items = [(row["qid"], item) for row in self.when for item in row[of]]
        arrays = [np.array([item["scores"][name] for _, item in items]) for name in names]
        arrays.append(np.array([item["missing"] for _, item in items], dtype=bool))
        groups = [qid for qid, _ in items]
        low, high = bootstrap_statistic(lambda at: statistic([a[at] for a in arrays]), groups, samples=SAMPLES)
        return statistic(arrays), low, high

    def recall(self, key: str) -> Interval:
        return _grouped(self.what[key], lambda row: row["recall"])

    def recall_difference(self, key: str, base: str) -> Interval:
        pairs = list(zip(self.what[key], self.what[base], strict=True))
        return _grouped(
            [{"qid": a["qid"], "value": a["recall"] - b["recall"]} for a, b in pairs], lambda row: row["value"]
        )

    @cached_property
    def rescored(self) -> dict[str, tuple[Interval, Interval]]:
        """Rule -> how EM and F1 change against the released code's, over the texts of every whole method."""
        pipeline = load_pipeline()
        whole = [run.key for run in SWAPPED if run.base is None or run.difference.startswith("whole")]
        texts = [(self.kinds[at], row) for key in whole for at, rows in self.runs[key].items() for row in rows]
        plain = [rescored(row, "S0", kind, pipeline) for kind, row in texts]
        changed = {}
        for rule in (rule for rule in RULES if rule != "S0"):
            pairs = zip(texts, [rescored(row, rule, kind, pipeline) for kind, row in texts], plain, strict=True)
            moved = [{"qid": row["qid"], "em": new[0] - old[0], "f1": new[1] - old[1]} for (_, row), new, old in pairs]
            changed[rule] = (_grouped(moved, lambda row: row["em"]), _grouped(moved, lambda row: row["f1"]))
        return changed

    def mean(self, run: str, name: str) -> Interval:
        found = interval_of(name, [row[name] for row in self.flat(run)])
        return found.mean, found.low, found.high

    def difference(self, run: str, base: str, name: str) -> Interval:
        found = paired([r[name] for r in self.flat(run)], [r[name] for r in self.flat(base)])
        return found.difference, found.low, found.high


_ITEMS = ("facts", "sentences")


def _grouped(rows: Sequence[Row], value: Any) -> Interval:
    values = np.array([value(row) for row in rows], dtype=float)
    if not len(values):
        return math.nan, math.nan, math.nan
    groups = [row["qid"] for row in rows]
    low, high = bootstrap_statistic(lambda at: float(values[at].mean()), groups, samples=SAMPLES)
    return float(values.mean()), low, high


def write_page(path: Path, template: Path, found: Results) -> None:
    """Fill the template's marks. A mark that nothing fills is an error: the page would hold a hole."""
    filled = marks(found)
    text = template.read_text(encoding="utf-8")
    unknown = sorted(set(MARK.findall(text)) - set(filled))
    if unknown:
        raise KeyError(f"{template}: no figures for {', '.join(unknown)}; the marks are {', '.join(sorted(filled))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MARK.sub(lambda mark: filled[mark[1]], text), encoding="utf-8")


def marks(found: Results) -> dict[str, str]:
    """Mark -> text: one for each difference that was measured alone, and the tables."""
    cells: dict[str, list[str]] = {}
    for add in (_when_cells, _what_cells, _run_cells, _score_cells):
        for difference, line in add(found):
            cells.setdefault(difference, []).append(line)
    tables = {
        "head": _head(found),
        "clear": _clear(found),
        "when table": _when_table(found),
        "what table": _what_table(found),
        "runs table": _runs_table(found),
        "scores table": _scores_table(found),
        "unflagged": _share(found, "dragin", "unflagged"),
        "long": _share(found, "dragin", "long"),
        "short": _share(found, "dragin", "short"),
        "overrun": _overrun(found),
    }
    return {difference: "<br>".join(lines) for difference, lines in cells.items()} | tables


# -- one difference -----------------------------------------------------------------------------------------------


def _when_cells(found: Results) -> list[tuple[str, str]]:
    swaps = [(s.difference, s.base, f"{s.base}: {s.label}", f"{s.base}, {s.label}") for s in TRIGGERS]
    if not found.labelled:
        return [(number, f"ROC area: {NO_LABELS}") for number in dict.fromkeys(s[0] for s in (*swaps, FLARE_WHEN))]
    return [
        (number, f"ROC area ({label}): {_signed(found.area_difference(score, base))}")
        for number, base, score, label in (*swaps, FLARE_WHEN)
    ]


def _what_cells(found: Results) -> list[tuple[str, str]]:
    lines = []
    for swap in whats():
        if swap.base is None:
            continue
        if not found.labelled:
            lines.append((swap.difference, f"recall@3 ({swap.key}): {NO_LABELS}"))
        else:
            difference = found.recall_difference(swap.key, swap.base)
            lines.append((swap.difference, f"recall@3 ({swap.key}): {_signed(difference)}"))
    return lines


def _run_cells(found: Results) -> list[tuple[str, str]]:
    lines = []
    for run in SWAPPED:
        if run.base is not None:
            em = _signed(found.difference(run.key, run.base, "em"))
            before, after = (fmean(row["retrievals"] for row in found.flat(key)) for key in (run.base, run.key))
            lines.append((run.difference, f"EM ({run.key}): {em}, retrievals {before:.2f} → {after:.2f}"))
    return lines


def _score_cells(found: Results) -> list[tuple[str, str]]:
    lines = []
    for rule, (em, f1) in found.rescored.items():
        lines.append((rule, f"EM {_signed(em)}, F1 {_signed(f1)}"))
    return lines


# -- tables -------------------------------------------------------------------------------------------------------


def _head(found: Results) -> str:
    about, model = found.about, found.about["model"]
    asked = len(next(iter(found.runs.values())))
    questions = len(found.flat(SWAPPED[0].key))
    rows = [
        ("model", f"`{model['model']}`, weights `{model['weights_sha256'][:12]}`, {model['dtype']}"),
        ("questions", f"{questions} of {asked} benchmark(s): {', '.join(f'`{name}`' for name in found.kinds)}"),
        ("passages", f"`{about['corpus']}`, {about['passages']:,}"),
        ("prompt", f"{about['shots']} worked examples"),
        ("sentences, content words", about["pipeline"]),
        (
            "θ of DRAGIN",
            f"the best F1 on the facts of {found.dev_limit} development questions a benchmark, for each way to score"
            if found.dev_limit
            else "the methods' own default, as these questions have no labels to choose it by",
        ),
        ("brackets", "95 % intervals: Wilson where values are 0 or 1, else bootstrap, questions drawn whole"),
    ]
    if found.labelled and not about["embedded"]:
        rows.append(("labels", "say what Almanac's own model was taught; this is another model or another copy of it"))
    return markdown_table(("", ""), rows)


def _clear(found: Results) -> str:
    """The differences that moved something beyond chance, the largest first."""
    moved: list[tuple[float, str]] = []

    def look(number: str, name: str, unit: str, interval: Interval) -> None:
        value, low, high = interval
        if low > 0 or high < 0:
            moved.append((abs(value), f"- {number}, {name}: {unit} {_signed(interval)}"))

    for run in SWAPPED:
        if run.base is not None:
            look(run.difference, run.key, "EM", found.difference(run.key, run.base, "em"))
    if found.labelled:
        for swap in TRIGGERS:
            name = f"{swap.base}: {swap.label}"
            look(swap.difference, name, "ROC area", found.area_difference(name, swap.base))
        for what in whats():
            if what.base is not None:
                look(what.difference, what.key, "recall@3", found.recall_difference(what.key, what.base))
    if not moved:
        return "None of them, on so many questions."
    return "\n".join(line for _, line in sorted(moved, reverse=True))


def _when_table(found: Results) -> str:
    if not found.labelled:
        return f"Not measured: {NO_LABELS}."
    rows = []
    bases = dict.fromkeys(("reference", "paper", *(s.base for s in TRIGGERS)))
    for base in bases:
        swaps = [(s.difference, f"{s.base}: {s.label}", s.label) for s in TRIGGERS if s.base == base]
        rows.append(_when_line(found, "", base, f"**{base}**", None))
        rows += [_when_line(found, number, score, label, base) for number, score, label in swaps]
    number, base, score, label = FLARE_WHEN
    rows += [_when_line(found, "", base, "**FLARE, the sentence's mean 1 − p**", None)]
    rows += [_when_line(found, number, score, label, base)]
    facts, sentences = ([item for row in found.when for item in row[of]] for of in _ITEMS)
    counts = [f"{of}, {sum(i['missing'] for i in items)} of {len(items)} missing" for of, items in
              (("facts", facts), ("sentences", sentences))]  # fmt: skip
    head = ("", "score", f"ROC area ({counts[0]})", f"ROC area ({counts[1]})", "sentences, against its base")
    return markdown_table(head, rows)


def _when_line(found: Results, number: str, score: str, label: str, base: str | None) -> list[str]:
    difference = "" if base is None else _signed(found.area_difference(score, base))
    return [
        number,
        label,
        bracketed(*found.areas[score, "facts"]),
        bracketed(*found.areas[score, "sentences"]),
        difference,
    ]


def _what_table(found: Results) -> str:
    if not found.labelled:
        return f"Not measured: {NO_LABELS}."
    rows = []
    for swap in whats():
        asked = found.what[swap.key]
        mrr = fmean(row["rr"] for row in asked) if asked else math.nan
        difference = "" if swap.base is None else _signed(found.recall_difference(swap.key, swap.base))
        rows.append(
            [swap.difference, swap.key, bracketed(*found.recall(swap.key)), rounded(mrr), difference, swap.base or ""]
        )
    n = len(found.what[whats()[0].key])
    return markdown_table(("", "query", f"recall@3 (n = {n})", "MRR", "recall@3 against", "this"), rows)


def _runs_table(found: Results) -> str:
    rows = []
    for run in SWAPPED:
        theta = found.thetas[run.key]
        line = [run.difference, f"`{run.key}`", "" if theta is None else f"{theta:.3g}"]
        line += [bracketed(*found.mean(run.key, name)) for name in ("em", "f1", "retrievals")]
        line.append(f"{fmean(row['tokens'] for row in found.flat(run.key)):.0f}")
        if run.base is not None:
            line += [_signed(found.difference(run.key, run.base, name)) for name in ("em", "f1", "retrievals")]
        rows.append([*line, *[""] * (10 - len(line))])
    columns = ("EM", "F1", "retrievals")
    n = len(found.flat(SWAPPED[0].key))
    head = ("", f"method (n = {n})", "θ", *columns, "tokens", *(f"{name}, against its base" for name in columns))
    return markdown_table(head, rows)


def _scores_table(found: Results) -> str:
    whole = [run.key for run in SWAPPED if run.base is None or run.difference.startswith("whole")]
    n = sum(len(found.flat(key)) for key in whole)
    rows = [[rule, RULES[rule], _signed(em), _signed(f1)] for rule, (em, f1) in found.rescored.items()]
    return markdown_table(("", f"read otherwise (n = {n} texts)", "EM", "F1"), rows)


def _share(found: Results, run: str, name: str) -> str:
    rows = found.flat(run)
    retrievals = sum(row["retrievals"] for row in rows)
    return f"{sum(row[name] for row in rows)} of {retrievals} retrievals of `{run}`"


def _overrun(found: Results) -> str:
    rows = [row for run in SWAPPED for row in found.flat(run.key)]
    return f"{sum(row['overrun'] > 0 for row in rows)} of {len(rows)} texts"


def _signed(interval: Interval) -> str:
    return bracketed(*interval, sign=True)
