"""Does a trigger that was fitted on one model find what another one lacks? For docs/triggers.md.

Fitted on Almanac's labelled development drafts and tested on SmolLM2's single facts; fitted on every second of these
facts and tested on Almanac's test questions. The default features were chosen on development
drafts and on the answers that are fitted on, after a first look at larger sets that had seen test items too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import spacy

import dragin_lab as dl
from dragin_lab.core.answers import normalize_answer
from dragin_lab.core.draft import Draft
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.study import needs, ranking
from dragin_lab.study.comparisons import bootstrap_statistic
from dragin_lab.study.fitting import LabelledDraft, fit_drafts
from dragin_lab.triggers.logistic import DEFAULT, FEATURES
from tools import real
from tools.pages.base import Row, bracketed, markdown_table
from tools.pages.real_model import OUTPUT, SILENT, read_part, restore_draft

ALMANAC, REAL = "Almanac", "SmolLM2"
ELSEWHERE = "fitted-smollm2"  # the trigger that docs/triggers.md has in one loop with Almanac's own
SETS = {
    "default": DEFAULT,
    "with names": (*DEFAULT, "name or number"),
    "entropy in nats": ("entropy", "stop word", "opens"),
    "nine, most in nats": (
        "entropy", "entropy rise", "doubt", "margin", "margin rise", "received", "stop word", "name or number",
        "position",
    ),
    "z-scores": ("entropy, z-score", "received, z-score", "stop word", "opens"),
    "ranks": ("entropy, rank", "received, rank", "stop word", "opens"),
}  # fmt: skip
RIVALS = ("rind", "entropy")
SHARES = (0.25, 0.5, 0.75)  # of the answers, that retrieve
SAMPLES = 2_000


# -- features that were tried here alone ------------------------------------------------------------------------------


def z_scores(values: np.ndarray) -> np.ndarray:
    """(n,) how many standard deviations each value lies above the mean of the draft's."""
    return (values - values.mean()) / (values.std() or 1.0)


def ranks(values: np.ndarray) -> np.ndarray:
    """(n,) the share of the draft's values that are below each."""
    return (values[:, None] > values[None, :]).mean(axis=1)  # type: ignore[no-any-return]


FEATURES.update({
    "entropy, z-score": lambda draft: z_scores(draft.entropy), "entropy, rank": lambda draft: ranks(draft.entropy),
    "received, z-score": lambda draft: z_scores(draft.received), "received, rank": lambda draft: ranks(draft.received),
})  # fmt: skip


# -- what SmolLM2 answered --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer to a single fact, and every trigger's score of it."""

    qid: str
    question: str
    draft: Draft
    wrong: bool
    scores: Mapping[str, float]

    def label(self) -> LabelledDraft:
        """Its tokens, missing where a wrong answer states its value."""
        value = find_value(self.draft, self.question)
        return LabelledDraft(dl.Question(self.qid, self.question), self.draft, value & self.wrong)


def find_value(draft: Draft, question: str) -> np.ndarray:
    """(n,) bool, the tokens that state the answer: those of words that are no stop words and not in the question."""
    asked = set(normalize_answer(question).split())
    own = [normalize_answer(word).split() for word in draft.words]
    says = [bool(parts) and not set(parts) <= asked for parts in own]
    return np.array(says, bool)[draft.word_of_token] & ~draft.stop_word


def real_answers(output: Path = OUTPUT) -> list[Answer]:
    """The answers to all single facts, known ones and 2Wiki's, in the order of docs/real-model.md."""
    pipeline = load_pipeline(spacy.load(real.ENGLISH.folder))
    rows: list[Row] = [row for part in ("known", "2wiki") for row in read_part(part, output)]
    drafts = [restore_draft(row["measured"], pipeline) for row in rows]
    return [
        Answer(str(number), row["question"], draft, not row["right"], row["scores"])
        for number, (row, draft) in enumerate(zip(rows, drafts, strict=True))
        if len(draft)
    ]


def halves(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Every second answer, to fit on, and the others, to test on."""
    return list(answers[::2]), list(answers[1::2])


# -- fits -------------------------------------------------------------------------------------------------------------


def name_of(model: str, features: str) -> str:
    """What a fitted trigger is called."""
    own = ELSEWHERE if model == REAL else "fitted"
    return own if features == "default" else f"{own}-{features.replace(', ', '-').replace(' ', '-')}"


def fit_sets(model: str, drafts: Sequence[LabelledDraft], folder: Path) -> dict[str, dl.Trigger]:
    """A trigger for each set of features by its name, from its file where it was fitted before."""
    folder.mkdir(exist_ok=True)
    fitted = {}
    for features, use in SETS.items():
        name = name_of(model, features)
        path = folder / f"{name}.json"
        fitted[features] = dl.trigger(path) if path.exists() else fit_drafts(drafts, name=name, use=use, output=path)
    return fitted


# -- tests ------------------------------------------------------------------------------------------------------------


def score_answers(answers: Sequence[Answer], fitted: Iterable[dl.Trigger] = ()) -> list[needs.Item]:
    """What each trigger gives an answer: its highest score over the tokens."""
    return [
        needs.Item(
            one.qid,
            "",
            one.wrong,
            {name: max(value, SILENT) for name, value in one.scores.items()}
            | {trigger.name: _score_answer(trigger, one.draft) for trigger in fitted},
        )
        for one in answers
    ]


def real_areas(answers: Sequence[Answer], fitted: dl.Trigger, elsewhere: dl.Trigger) -> dict[str, needs.Row]:
    """Every trigger's ROC area on the single facts; that of one that was fitted on half of them, on the other half."""
    every = {row.trigger: row for row in needs.when_table(score_answers(answers, [fitted, *_prefixes()]), {})}
    _, test = halves(answers)
    others = needs.when_table([_with_scores(item, [elsewhere.name]) for item in score_answers(test, [elsewhere])], {})
    return every | {row.trigger: row for row in others}


def _prefixes() -> list[dl.Trigger]:
    """The triggers that judge a text's beginning: an answer to a single fact is hardly longer."""
    return [TRIGGERS.make(name) for name in ("prefix-margin", "prefix-entropy")]


def _score_answer(trigger: dl.Trigger, draft: Draft) -> float:
    return float(trigger.score_tokens(draft).max() if trigger.unit == "word" else trigger.score_unit(draft))


@dataclass(frozen=True)
class Difference:
    """A measure of two triggers on the same items: the first minus the second, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the first is ahead by an interval clear of 0."""
        return self.low > 0

    def __str__(self) -> str:
        return bracketed(self.value, self.low, self.high, sign=True)


def compare(items: Sequence[needs.Item], first: str, second: str, measure: Any = ranking.roc_area) -> Difference:
    """``measure(scores, missing)`` of one trigger minus that of another, questions resampled."""
    missing = np.array([item.missing for item in items], bool)  # (m,)
    a, b = (np.array([item.scores[name] for item in items]) for name in (first, second))  # (m,)

    def difference(at: np.ndarray) -> float:
        return float(measure(a[at], missing[at]) - measure(b[at], missing[at]))

    low, high = bootstrap_statistic(difference, [item.qid for item in items], samples=SAMPLES)
    return Difference(difference(np.arange(len(items))), low, high)


def caught(scores: np.ndarray, missing: np.ndarray, share: float) -> float:
    """Of the missing, which part is among the ``share`` of all that scores highest; equal scores count in part."""
    order = np.argsort(-scores, kind="stable")
    cut = share * len(scores)
    theta = scores[order[min(math.ceil(cut), len(scores)) - 1]]
    above, at = scores > theta, scores == theta
    weight = above + at * (cut - above.sum()) / max(at.sum(), 1)  # (m,) how sure each is to be chosen
    return float(weight[missing].sum() / missing.sum()) if missing.any() else math.nan


@dataclass(frozen=True)
class Test:
    """A fitted trigger on the model that it was not fitted on."""

    fitted_on: str
    tested_on: str
    features: str
    area: needs.Row
    leads: Mapping[str, Difference]  # of areas, by rival


def run_tests(fitted_on: str, tested_on: str, items: Sequence[needs.Item]) -> list[Test]:
    """One test for each set of features; ``items`` have the scores of the fitted triggers and of their rivals."""
    wanted = [name_of(fitted_on, features) for features in SETS]
    kept = [_with_scores(item, [*wanted, *RIVALS]) for item in items]
    areas = {row.trigger: row for row in needs.when_table(kept, {})}
    return [
        Test(fitted_on, tested_on, features, areas[name], {rival: compare(kept, name, rival) for rival in RIVALS})
        for features, name in zip(SETS, wanted, strict=True)
    ]


def _with_scores(item: needs.Item, names: Sequence[str]) -> needs.Item:
    return needs.Item(item.qid, item.degree, item.missing, {name: item.scores[name] for name in names})


def test_table(tests: Sequence[Test]) -> str:
    """A row for each fitted trigger."""
    rows = [
        (t.fitted_on, t.tested_on, t.features, bracketed(t.area.area, t.area.low, t.area.high), *t.leads.values())
        for t in tests
    ]
    head = ("fitted on", "tested on", "features", "ROC area", *(f"minus `{rival}`" for rival in RIVALS))
    return markdown_table(head, rows)


def budget_table(items: Sequence[needs.Item], name: str) -> tuple[str, list[Difference]]:
    """At the same share of SmolLM2's answers that retrieve: how many of the wrong ones are among them."""
    rows, every = [], []
    missing = np.array([item.missing for item in items], bool)  # (m,)
    for share in SHARES:
        measure = partial(caught, share=share)
        cells = [f"{measure(np.array([i.scores[n] for i in items]), missing):.3f}" for n in (name, *RIVALS)]
        leads = [compare(items, name, rival, measure) for rival in RIVALS]
        every += leads
        rows.append((f"{share:.0%}", *cells, *leads))
    head = ("answers that retrieve", f"`{name}`", *(f"`{r}`" for r in RIVALS), *(f"minus `{r}`" for r in RIVALS))
    return markdown_table(head, rows), every
