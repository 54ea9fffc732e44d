"""``dl.fit_trigger``: a trigger learned from labelled traces, by scikit-learn, and its plain JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.methods import restore_method
from dragin_lab.checks import choice, instance, several
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.errors import SettingError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.run.lab import Lab
from dragin_lab.study.spans import Spans, read_texts, tokens_of
from dragin_lab.study.statistics import roc_area
from dragin_lab.study.stored_drafts import as_judged
from dragin_lab.study.truth import find_labels, read_truths
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.records import fingerprint
from dragin_lab.trace.trace import Question, Trace
from dragin_lab.triggers.logistic import DEFAULT, FEATURES, HIDDEN, Logistic, define, features

LEAST = 20  # labelled traces
FOLDS = 5  # of questions, for the area that the file records


class Term(msgspec.Struct):
    """A feature, its weight, and the mean and scale that it is standardised with."""

    feature: str
    weight: float
    mean: float
    scale: Annotated[float, msgspec.Meta(gt=0)]


class FittedOn(msgspec.Struct):
    """What a trigger was fitted on: answers, tokens of both kinds, and the area on questions that were left out."""

    traces: int
    questions: str  # a fingerprint
    tokens: int
    missing: int
    area: float | None


class TriggerFile(msgspec.Struct):
    """The JSON file of a fitted trigger."""

    format: Literal[1]
    name: str
    threshold: float
    bias: float
    terms: list[Term]
    fitted_on: FittedOn | None = None


#: A question, a draft of its answer, and for the draft's first r tokens whether they state a missing fact: (r,) bool.
LabelledDraft = tuple[Question, Draft, np.ndarray]


def fit_trigger(
    traces: Iterable[Trace] | Spans,
    labels: Iterable[Labelled] | Lab,
    *,
    name: str = "fitted",
    use: Sequence[str] | None = None,
    output: str | Path | None = None,
    nlp: Any = None,
) -> Logistic:
    """Learn from traces where a model's drafts lack information, and make a trigger of it under ``name``.

    A logistic regression over the tokens of the drafts, each standardised feature with one weight. Positive: the tokens
    of a value that the model could not know, by ``labels``; negative: all others up to the last value that could be
    read. Take traces without retrievals, of development questions. ``nlp`` is the traces' spaCy pipeline. Or give
    ``dl.Spans``, and in place of labels the lab whose model reads them: positive are the tokens of what is not
    supported.

    Args:
        use: features, of ``triggers.logistic.FEATURES``; default ``triggers.logistic.DEFAULT``, which serve on another
            model too. "hidden" stands for every component of the hidden state, where the drafts have it.
        output: a JSON file to write; ``trigger`` and ``--with`` read it.

    Raises ``SettingError`` for fewer than 20 labelled traces, labels of one class alone, features that do not exist,
    are missing in a draft, have another shape there or are not finite.
    """
    path = None if output is None else as_path(output)  # before anything is computed
    if isinstance(traces, Spans):
        lab = instance("labels", labels, Lab, "give the lab whose model reads the spans")
        drafts, count = list(_label_spans(lab, traces, nlp)), len(traces.texts)
    else:
        known = several("labels", labels, Labelled, "give almanac.labels(...)")
        every = several("traces", traces, Trace, "give a list of traces")
        pairs = [(t, own) for t in every if t.ended != "error" and (own := find_labels(t, known)) is not None]
        if len(pairs) < LEAST:
            raise SettingError(
                f"{len(pairs)} traces are labelled; a trigger is fitted on {LEAST} or more: give more, or their labels"
            )
        drafts, count = [draft for pair in pairs for draft in _label_trace(*pair, nlp)], len(pairs)
    if not drafts:
        raise SettingError(f"none of {count} traces states a labelled fact in a known wording; look at their texts")
    questions, texts, missing = zip(*drafts, strict=True)
    names = _choose_features(use, texts)
    x = np.concatenate([_measure_features(draft, names, len(of)) for _, draft, of in drafts])  # (m, f)
    y = np.concatenate(missing)  # (m,)
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    groups = np.concatenate([np.full(len(of), numbers[question]) for question, _, of in drafts])  # (m,)
    if y.all() or not y.any():
        kind = "missing" if y.all() else "known"
        raise SettingError(f"all {len(y)} labelled tokens are {kind}; a trigger is fitted on tokens of both kinds")
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)  # a feature that never changes gets no weight
    z = (x - mean) / scale
    model = _make_regression().fit(z, y)
    terms = [Term(n, *map(float, row)) for n, *row in zip(names, model.coef_[0], mean, scale, strict=True)]
    record = TriggerFile(1, name, 0.5, float(model.intercept_[0]), terms)
    if path is not None:
        area = _score_held_out(z, y, groups)
        record.fitted_on = FittedOn(len(numbers), fingerprint(numbers), len(y), int(y.sum()), area)
        try:
            write_whole(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        except OSError as error:
            raise SettingError(not_saved(path, error)) from error
    return _define(record)


def trigger(path: str | Path) -> Logistic:
    """The trigger of a JSON file of ``fit_trigger``, under the name that it was given there.

    Raises ``SettingError`` for a file that cannot be read or is not one, naming what is wrong.
    """
    try:
        record = msgspec.json.decode(as_path(path).read_bytes(), type=TriggerFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError(
            f"{path}: is not a fitted trigger ({error}); give a file that dl.fit_trigger wrote"
        ) from None
    for term in record.terms:
        if not term.feature.removeprefix(HIDDEN).isdigit():
            choice(f"{path}: feature", term.feature, FEATURES)
    return _define(record)


def _define(record: TriggerFile) -> Logistic:
    return define(record.name, [msgspec.structs.astuple(term) for term in record.terms], record.bias, record.threshold)


# -- parts ------------------------------------------------------------------------------------------------------------


def _label_spans(lab: Lab, spans: Spans, nlp: Any) -> Iterator[LabelledDraft]:
    """The texts as the lab's model reads them."""
    pipeline = load_pipeline(nlp)
    for number, (one, own, draft, lead) in enumerate(read_texts(lab, spans)):
        values = [(span.start + lead, span.end + lead, span.missing) for span in own]
        yield Question(str(number), one.prompt), draft.read_by(pipeline), _label_tokens(draft, values)


def _label_trace(trace: Trace, labelled: Labelled, nlp: Any) -> Iterator[LabelledDraft]:
    """The drafts of a trace that state labelled facts."""
    method = restore_method(trace.method, nlp)
    for step, truth in zip(trace.steps, read_truths(trace, labelled), strict=True):
        if truth is not None and truth.stated:
            draft = as_judged(trace, step, method)
            yield trace.question, draft, _label_tokens(draft, truth.stated)


def _label_tokens(draft: Draft, values: Sequence[tuple[int, int, bool]]) -> np.ndarray:
    """(r,) bool: whether each token, up to the end of the last value, is of one that is missing."""
    missing = np.zeros(int((draft.offsets[:, 0] < max(end for _, end, _ in values)).sum()), bool)
    for start, end, is_missing in values:
        missing[tokens_of(draft, start, end)] |= is_missing
    return missing


def _choose_features(use: Sequence[str] | None, drafts: Sequence[Draft]) -> list[str]:
    """The names of the features, hidden states one by one."""
    names = list(DEFAULT if use is None else use)
    if "hidden" in names:
        widths = {None if draft.states is None else draft.states.shape[1] for draft in drafts}
        if len(widths) > 1 or None in widths:
            raise SettingError(
                f"the drafts' hidden states have widths {sorted(map(str, widths))}; ask with a trigger that needs "
                "'hidden', on one model"
            )
        names = [n for n in names if n != "hidden"] + [f"{HIDDEN}{i}" for i in range(widths.pop() or 0)]
    return names


def _measure_features(draft: Draft, names: Sequence[str], rows: int) -> np.ndarray:
    """(rows, f) float64 the features of a draft's first tokens. Raises ``SettingError`` where one is not finite."""
    values = features(draft, names)  # (n, f)
    for t, f in np.argwhere(~np.isfinite(values))[:1]:
        raise SettingError(
            f"feature {names[f]!r} is {values[t, f]} at token {t} ({draft.tokens[t]!r}) of {draft.text[:60]!r}; "
            "leave that trace or that feature out"
        )
    return values[:rows]


def _make_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(class_weight="balanced", max_iter=1000)


def _score_held_out(z: np.ndarray, y: np.ndarray, groups: np.ndarray) -> float | None:
    """The ROC area over tokens of questions that were left out of the fit; None where there is none."""
    from sklearn.model_selection import GroupKFold

    scores = np.full(len(y), np.nan)  # (m,)
    folds = min(FOLDS, len(np.unique(groups)))
    for fit, held in GroupKFold(folds).split(z, y, groups) if folds > 1 else ():
        if y[fit].any() and not y[fit].all():
            scores[held] = _make_regression().fit(z[fit], y[fit]).decision_function(z[held])
    seen = np.isfinite(scores)
    area = roc_area(scores[seen], y[seen])
    return area if np.isfinite(area) else None
