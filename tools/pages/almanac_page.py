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
from tools.pages.base import Row, bracketed, markdown_table, rounded
from tools.pages.queries import Asked

READING = ("<!-- reading: written by hand, kept when the page is made again -->", "<!-- end of reading -->")
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
    """Write the page; what stands between the marks of ``READING`` in the page there is kept."""
    reading = "Nothing written yet."
    if path.exists() and READING[0] in (old := path.read_text(encoding="utf-8")):
        reading = old.split(READING[0])[1].split(READING[1])[0].strip()
    parts = [_head(found), "\n".join((READING[0], reading, READING[1])), _when(found), _what(found), _methods(found)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


# -- parts --------------------------------------------------------------------------------------------------------


def _head(found: Results) -> str:
    asked = sum(len(next(iter(rows.values()))) for rows in found.answered.values())
    return f"""# Almanac: when to retrieve, and what to ask

Made by `python -m tools.pages.almanac`. Everything here is measured on Almanac's test split, whose every fact carries a
label: could the model know it, or did it have to look?

| | |
| --- | --- |
| model | `{found.model["model"]}`, weights `{found.model["weights_sha256"][:12]}`, {found.model["dtype"]} |
| attention | layer {found.model["layer"]}, mean over heads |
| prompt | two exemplars of the benchmark |
| passages | BM25 over all {found.passages:,} |
| sentences, content words | {found.pipeline} |
| θ and query lengths | chosen on {found.dev_limit} development questions a benchmark |
| *when* and *what* | {len(found.ends)} test questions |
| methods | {asked} test questions |
| brackets | 95 % intervals: Wilson where values are 0 or 1, else bootstrap of questions |"""


def _when(found: Results) -> str:
    facts, best = found.facts, found.best
    half = [item for item in facts if item.degree != "seldom"]
    own = needs.own_view(facts)
    rows = []
    for row in needs.when_table(facts, best):
        rows.append(
            [
                _trigger(row.trigger),
                bracketed(row.area, row.low, row.high),
                rounded(row.average_precision),
                rounded(_area(half, row.trigger)),
                rounded(_area(own, row.trigger)),
                rounded(_area(own, row.trigger, said=True)),
                "" if row.trigger in needs.CLOCKS else f"{row.threshold:.3g}",
                rounded(row.precision),
                rounded(row.recall),
            ]
        )
    areas = ("ROC area", "average precision", "area without half-known", "own view", "own view, own mistakes")
    table = markdown_table(("trigger", *areas, "θ", "precision", "recall"), rows)
    fired = needs.fired_by_degree(facts, best)
    count = Counter(item.degree for item in facts)
    degrees = [d for d in DEGREES if count[d]]
    fired_own = needs.fired_by_degree(own, best)
    by_degree = markdown_table(
        ("trigger", *(f"{d} (n = {count[d]})" for d in degrees), "changed, own view", "never, own view"),
        [
            [
                _trigger(name),
                *(rounded(fired[name][d]) for d in degrees),
                *(rounded(fired_own[name].get(d, math.nan)) for d in ("changed", "never")),
            ]
            for name in needs.triggers_of(facts)
        ],
    )
    at_theta = []
    for method, theta in found.thetas.items():
        name = TRIGGER_OF[method]
        scores, labels = _arrays(facts, name)
        precision, recall = precision_recall(scores, labels, theta)
        at_theta.append([NAMES[method], _trigger(name), f"{theta:g}", rounded(precision), rounded(recall)])
    sentences = [
        [_trigger(r.trigger), bracketed(r.area, r.low, r.high), rounded(r.average_precision)]
        for r in needs.when_table(found.sentences, {})
    ]
    positive = sum(item.missing for item in facts)
    lacking = sum(item.missing for item in found.sentences)
    return f"""## When

The gold reasoning is forced on the model after the question's direct prompt. A fact's score is the largest over its
value's tokens. Positive: the {positive} facts that the model could not know (never taught, or taught with another value
since changed); negative: the {len(facts) - positive} that it was taught. *Half-known*: taught, but seldom (a stretch of
8,192 training examples asks for it fewer than 12 times); it counts as known, and the third area leaves it out. θ has
the best F1 on development's facts. A clock has "fired" on a fact when a retrieval falls between the start of its
sentence and the end of its value.

Forcing shows a trigger more than it would see: after the first token that the model would not have written, its
surprise about the gold value shows, and `probability` is that of the gold token. *Own view* takes a value's tokens only
up to and with that first token (`probability-first` is then what FLARE would see there). *Own mistakes*: do these
scores tell the facts that the model would have got wrong from those it would have got right, whatever it was taught?

{table}

At the θ that the methods below use:

{markdown_table(("method", "score", "θ", "precision", "recall"), at_theta)}

Share of facts on which each fires at the θ of the first table, by how often the fact was taught (*changed*: taught
with its old value; *never*: it could only be read):

{by_degree}

The same for whole sentences, which is what a method decides on: the largest score of any token in it, so that doubt
about the wording counts. Positive: the {lacking} of {len(found.sentences)} sentences that hold a fact the model could
not know.

{markdown_table(("trigger", "ROC area", "average precision"), sentences)}

{_free(found)}"""


def _free(found: Results) -> str:
    ends = Counter(found.ends)
    wrong = sum(item.missing for item in found.free)
    lost = found.lost
    rows = [
        [
            _trigger(r.trigger),
            bracketed(r.area, r.low, r.high),
            rounded(r.average_precision),
            rounded(r.precision),
            rounded(r.recall),
        ]
        for r in needs.when_table(found.free, found.best)
    ]
    return f"""### What the model writes by itself

The model answers without passages. Its facts are found by the wordings that Almanac uses, in the order of the gold
reasoning, up to the first wrong one. Positive: the {wrong} first wrong facts; negative: the {len(found.free) - wrong}
right facts before them. Of {len(found.ends)} texts {ends["first wrong"]} were read up to a wrong fact and
{ends["all right"]} are right throughout. {ends["lost"]} were lost: at some fact they speak of another subject, in
another order, or in no known wording; the {lost} facts before that place count, what comes then is left out. θ as
above.

{markdown_table(("trigger", "ROC area", "average precision", "precision", "recall"), rows)}"""


def _what(found: Results) -> str:
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
    n, size = len(next(iter(found.asked.values()))), found.top_n
    columns = [f"{v}: {c}" for v in ("reference", "paper") for c in ("recall@3", "MRR", "QFS minus it")]
    return f"""## What

For each of the {n} missing facts the gold reasoning stands up to its value and the model ends the sentence by itself;
the words it writes for the value are the hits. So *when* is right for every formulator, and they differ in what they
ask. A query is good when its first three passages hold the one that states the fact. QFS keeps
{size["reference"]["qfs"]} words (reference) and {size["paper"]["qfs"]} (paper), `last-n` {size["reference"]["last-n"]}
and {size["paper"]["last-n"]} tokens, chosen on development. MRR counts the first ten.

{markdown_table(("formulator", *columns), rows)}"""


def _methods(found: Results) -> str:
    blocks = []
    for benchmark, by_method in found.answered.items():
        blocks.append(
            f"### {benchmark} (n = {len(next(iter(by_method.values())))})\n\n{_answers(by_method, found.labels)}"
        )
    keys = list(next(iter(found.answered.values())))
    pooled = {key: [row for rows in found.answered.values() for row in rows[key]] for key in keys}
    blocks.insert(0, f"### All four (n = {len(pooled[keys[0]])})\n\n{_answers(pooled, found.labels)}")
    everything = {**found.answered, "all four": pooled}
    paired = [
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
    body = "\n\n".join(blocks)
    return f"""## Methods

Exact match (on StrategyQA: accuracy), by what the question needs: *known*: every fact was taught; *changed*: some fact
was taught with its old value; *unknown*: some fact was never taught. Retrievals a question, in brackets those on known
questions, where none is needed. *Found*: share of the missing facts whose passage was among those retrieved at some
time; then exact match on the questions of which all were. Tokens: all that the model generated for a question, thrown
away or not. Reference variant unless said otherwise.

{body}

### Paired differences in exact match

{markdown_table(("difference", *everything), paired)}

### Thresholds tried on development

θ: exact match (retrievals), over {found.dev_limit} development questions of each benchmark; the best is used above,
with fewer retrievals where two are equal. *{NAMES["dragin-sparing"]}* has the best θ with at most {SPARING:g}
retrievals per question there: {found.thetas["dragin-sparing"]:g}. DRAGIN's queries keep {found.words["dragin"]} words
(reference) and {found.words["dragin-paper"]} (paper), chosen there in its loop too, at one θ.

{markdown_table(("method", "tried", "used"), tried)}"""


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


def _area(items: Sequence[needs.Item], trigger: str, *, said: bool = False) -> float:
    scores, labels = _arrays(items, trigger)
    return roc_area(scores, np.array([not i.first_choice for i in items], dtype=bool) if said else labels)


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
