"""Ground truth of *when*: did a trigger's score rise where the model could not know, and nowhere else?

Each fact of a gold reasoning is labelled: could the model know it or not (``labels``)? The reasoning is forced on the
model after the question's direct prompt, every trigger scores every token, and a fact's score is the largest over its
value's tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.almanac.facts import DEGREES, Labelled
from dragin_lab.catalog.methods import method as make_method
from dragin_lab.core.clock import EveryN, EverySentence
from dragin_lab.core.needs import find_missing
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts, pool_words
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.errors import SettingError
from dragin_lab.reference.measures import assign_tokens, assign_words, merge_words, receive_attention, score_words
from dragin_lab.run.lab import Lab
from dragin_lab.study import ranking
from dragin_lab.study.comparisons import bootstrap_statistic
from dragin_lab.trace.draft import Word
from dragin_lab.trace.trace import Draft

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.engines.load import LanguageModel

#: What the released code scores, beside the triggers of the registry: RIND and its attention alone by words, without
#: the prompt in view; 1 - p of the likeliest token, whatever was written; FLARE's mean 1 - p of the sentence.
RELEASED = ("rind-reference", "attention-reference", "probability-first", "probability-sentence")
#: These fire at a place, whatever the model thinks: a fact counts as looked up when the place lies between the start of
#: its sentence and the end of its value.
CLOCKS = (EverySentence.name, EveryN.name)
SAMPLES = 1_000  # of the questions, for an interval of an area; each ranks all facts again


@dataclass(frozen=True)
class Item:
    """One thing a trigger should fire on or leave alone: a fact or a sentence, with every trigger's score on it.

    ``degree`` is the fact's (``facts.DEGREES``); of a sentence, that of the fact in it that is known least, "none"
    where it has none. ``missing``: the model could not know it. ``first_choice``: each token of the value was the
    model's own first choice; None where it does not apply. ``own`` are a forced fact's scores over the tokens up to
    the first that the model would not have written: what follows would not have stood in a draft of its own.
    """

    qid: str
    degree: str
    missing: bool
    scores: Mapping[str, float]
    first_choice: bool | None = None
    own: Mapping[str, float] = field(default_factory=dict)


# -- scores -------------------------------------------------------------------------------------------------------


def score_triggers(pipeline: Pipeline, written: Draft) -> list[Trigger]:
    """The registered triggers that score tokens by what was captured with a text, custom and fitted ones too."""
    parts = [TRIGGERS.named(name) for name in TRIGGERS.names()]
    scored = [part for part in parts if part.judges_drafts()]
    usable = [part for part in scored if not find_missing(part.needs, written)]
    finds = pipeline.finds_entities
    return [TRIGGERS.make(part, threshold=0.0) for part in usable if finds or "entities" not in part.needs]


def left_out(items: Iterable[Item]) -> dict[str, str]:
    """The triggers of drafts without a score on these items, and why: what they read is not captured for them."""
    scored = set(triggers_of(items))
    reasons = {}
    for name in TRIGGERS.names():
        part = TRIGGERS.named(name)
        missing = [need for need in part.needs if need != "received"]
        if part.judges_drafts() and name not in scored and missing:
            reasons[name] = f"reads {'hidden states' if 'hidden' in missing[0] else missing[0]}"
    return reasons


def score_tokens(lm: LanguageModel, continuation: Draft, pipeline: Pipeline, every: int = 16) -> dict[str, np.ndarray]:
    """Every trigger's score of every token of a text, each (n,) float64, as far as what it reads was captured.

    Scores of words and sentences stand on each of their tokens. ``every`` are the tokens between two strikes of the
    clock ``every-n``.
    """
    ids = continuation.ids.tolist()
    doubt = doubts(continuation.logprob)  # (n,)
    draft = continuation.read_by(pipeline)
    words = merge_words(continuation.pieces, ids, lm.tokenizer.marker)
    sentences = pipeline.split(continuation.raw_text)
    ranges = assign_words(sentences, [word.text for word in words])
    received = receive_attention(lm.attend(ids), first_is_eos=continuation.pieces[0] == "</s>")  # (n,)
    attended = pool_words(received, words, "sum")  # (w,)
    entropy = pool_words(continuation.entropy.astype(np.float64), words, "mean")  # (w,)
    decoded = [lm.tokenizer.decode([i], special=True) for i in ids]
    mean_doubt, starts, clock = (np.zeros(len(continuation)) for _ in range(3))
    for first, last in assign_tokens(sentences, decoded):
        mean_doubt[first:last] = doubt[first:last].mean() if last > first else 0.0
    for start, end in pipeline.spans(continuation.text):
        starts[tokens_of(continuation, start, end)[:1]] = 1.0
    clock[::every] = 1.0
    scores = {
        "rind-reference": _on_tokens(len(continuation), words, ranges, score_words(attended, entropy, ranges)),
        "attention-reference": _on_tokens(
            len(continuation), words, ranges, score_words(attended, np.ones(len(words)), ranges)
        ),
        "probability-first": 1.0 - continuation.alternative_probs[:, 0].astype(np.float64),
        "probability-sentence": mean_doubt,
        EverySentence.name: starts,
        EveryN.name: clock,
    }
    return scores | {trigger.name: trigger.score_tokens(draft) for trigger in score_triggers(pipeline, continuation)}


def _on_tokens(
    n: int, words: Sequence[Word], ranges: Sequence[tuple[int, int]], scores: Sequence[np.ndarray]
) -> np.ndarray:
    """(n,) the scores of each sentence's words, on each of their tokens; 0 outside."""
    by_token = np.zeros(n)
    for (first, last), inside in zip(ranges, scores, strict=True):
        for word, score in zip(words[first:last], inside, strict=True):
            by_token[word.start : word.stop] = score
    return by_token


def tokens_of(continuation: Draft, start: int, end: int) -> np.ndarray:
    """The tokens that hold some of the characters [start, end) of the text; (m,) int."""
    return np.flatnonzero((continuation.offsets[:, 0] < end) & (continuation.offsets[:, 1] > start))


def gather_scores(scores: Mapping[str, np.ndarray], value: np.ndarray, sentence: np.ndarray) -> dict[str, float]:
    """The largest score over a value's tokens; of a clock, over its sentence up to the value's end."""
    before = sentence[sentence <= value.max()]
    return {name: float(scores[name][before if name in CLOCKS else value].max()) for name in scores}


def sentence_at(continuation: Draft, spans: Sequence[tuple[int, int]], place: int) -> np.ndarray:
    start, end = next(((a, b) for a, b in spans if b > place), (place, len(continuation.text)))
    return tokens_of(continuation, min(start, place), end)


# -- the gold reasoning, forced -----------------------------------------------------------------------------------


def forced_items(
    lm: LanguageModel, labelled: Labelled, template: PromptTemplate, pipeline: Pipeline, every: int = 16
) -> tuple[list[Item], list[Item]]:
    """The facts and the sentences of a question's gold reasoning, scored as if the model had written them.

    The closing "So the answer is …" is forced too, as a trigger looks at the whole draft. A sentence's score is the
    largest of all its tokens, so doubt about the wording counts in it.
    """
    continuation = lm.score(
        template.render(labelled.question),
        f" {labelled.reasoning} So the answer is {labelled.answer}.",
    )
    lead = continuation.text.find(labelled.reasoning)
    if lead < 0:
        raise SettingError(f"{labelled.qid}: the tokenizer does not give the reasoning back as it was written")
    scores = score_tokens(lm, continuation, pipeline, every)
    first_choice = continuation.alternative_ids[:, 0] == continuation.ids  # (n,)
    spans = pipeline.spans(continuation.text)
    facts = []
    for fact in labelled.facts:
        value = tokens_of(continuation, fact.start + lead, fact.end + lead)
        sentence = sentence_at(continuation, spans, fact.start + lead)
        chosen = first_choice[value]  # (m,)
        seen = value if chosen.all() else value[: int(chosen.argmin()) + 1]
        whole, own = gather_scores(scores, value, sentence), gather_scores(scores, seen, sentence)
        facts.append(Item(labelled.qid, fact.degree, fact.missing, whole, bool(chosen.all()), own))
    sentences = []
    for start, end in spans:
        inside = [fact for fact in labelled.facts if start <= fact.start + lead < end]
        least = max((fact.degree for fact in inside), key=DEGREES.index, default="none")
        tokens = tokens_of(continuation, start, end)
        missing = any(fact.missing for fact in inside)
        sentences.append(Item(labelled.qid, least, missing, gather_scores(scores, tokens, tokens)))
    return facts, sentences


# -- tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A trigger over some items: ROC area with its interval, average precision, and what a threshold gives."""

    trigger: str
    area: float
    low: float
    high: float
    average_precision: float
    threshold: float
    precision: float
    recall: float


def when_table(
    items: Sequence[Item],
    thresholds: Mapping[str, float],
    positive: Callable[[Item], bool] = lambda item: item.missing,
    *,
    samples: int = SAMPLES,
) -> list[Row]:
    """One row a trigger. ``thresholds`` holds what each is judged at; clocks fire at 0.5. Questions are resampled."""
    labels = np.array([positive(item) for item in items], dtype=bool)  # (m,)
    groups = [item.qid for item in items]
    rows = []
    for name in triggers_of(items):
        scores = np.array([item.scores[name] for item in items])  # (m,)
        theta = 0.5 if name in CLOCKS else thresholds.get(name, float("nan"))
        area_of = partial(_area_of, scores, labels)
        low, high = bootstrap_statistic(area_of, groups, samples=samples)
        precision, recall = ranking.precision_recall(scores, labels, theta)
        area, average = ranking.roc_area(scores, labels), ranking.average_precision(scores, labels)
        rows.append(Row(name, area, low, high, average, theta, precision, recall))
    return rows


def _area_of(scores: np.ndarray, labels: np.ndarray, at: np.ndarray) -> float:
    return ranking.roc_area(scores[at], labels[at])


def detection(lab: Lab, labels: Iterable[Labelled]) -> pd.DataFrame:
    """How well each trigger tells what has to be looked up: one row per trigger, its areas with 95 % intervals.

    Columns: trigger, n (facts), ``forced`` (all tokens of a fact's value), ``own`` (up to the first token that the
    model would not have written), ``sentences``, each with ``_low`` and ``_high``, and average ``precision`` of the
    facts.
    """
    import pandas as pd

    alone = make_method("wo-rag")
    template = lab.template(alone)
    facts: list[Item] = []
    sentences: list[Item] = []
    for labelled in labels:
        of_facts, of_sentences = forced_items(lab.model, labelled, template, alone.pipeline)
        facts, sentences = facts + of_facts, sentences + of_sentences
    columns: dict[str, Any] = {}
    for name, items in (("forced", facts), ("own", own_view(facts)), ("sentences", sentences)):
        rows = pd.DataFrame(when_table(items, {})).set_index("trigger")
        columns |= {name: rows["area"], f"{name}_low": rows["low"], f"{name}_high": rows["high"]}
        columns.setdefault("precision", rows["average_precision"])
    table = pd.DataFrame(columns).reset_index()
    table.insert(1, "n", len(facts))
    return table[[*table.columns.drop("precision"), "precision"]]


def own_view(items: Iterable[Item]) -> list[Item]:
    """The same items with their scores up to the first token that the model would not have written."""
    return [replace(item, scores=item.own) for item in items]


def best_thresholds(items: Sequence[Item]) -> dict[str, float]:
    """For each trigger the threshold with the highest F1 on these items; take development's."""
    labels = np.array([item.missing for item in items], dtype=bool)
    return {
        name: ranking.best_threshold(np.array([item.scores[name] for item in items]), labels)
        for name in triggers_of(items)
        if name not in CLOCKS
    }


def fired_by_degree(items: Sequence[Item], thresholds: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """trigger -> degree -> the share of its items that score above the threshold."""
    counts = Counter(item.degree for item in items)
    return {
        name: {
            degree: sum(i.scores[name] > thresholds.get(name, 0.5) for i in items if i.degree == degree) / count
            for degree, count in counts.items()
        }
        for name in triggers_of(items)
    }


def triggers_of(items: Iterable[Item]) -> list[str]:
    """Everything that the items were scored by, custom ones included."""
    return list(dict.fromkeys(name for item in items for name in item.scores))
