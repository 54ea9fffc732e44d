"""``dl.fit_trigger``: a trigger learned from labelled traces, by scikit-learn, and its plain JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.almanac.facts import Labelled
from dragin_lab.checks import several
from dragin_lab.core.draft import Draft
from dragin_lab.core.method import restored
from dragin_lab.errors import SettingError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.study.ranking import roc_area
from dragin_lab.study.stored_drafts import as_judged
from dragin_lab.study.truth import read_truths
from dragin_lab.trace.records import fingerprint
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.logistic import FEATURES, HIDDEN, Logistic, define, features

FORMAT = 1  # of the JSON file
LEAST = 20  # labelled traces
FOLDS = 5  # of questions, for the area that the file records


def fit_trigger(
    traces: Iterable[Trace],
    labels: Iterable[Labelled],
    *,
    name: str = "fitted",
    use: Sequence[str] | None = None,
    output: str | Path | None = None,
    nlp: Any = None,
) -> Logistic:
    """Learn from traces where a model's drafts lack information, and make a trigger of it under ``name``.

    A logistic regression over the tokens of the drafts, each standardised feature with one weight. Positive: the tokens
    of a value that the model could not know, by ``labels``; negative: all others up to the last value that could be
    read. Take traces without retrievals, of development questions. ``nlp`` is the traces' spaCy pipeline.

    Args:
        use: features, of ``triggers.logistic.FEATURES``; default all that the drafts have. "hidden" stands for every
            component of the hidden state, where the drafts have it; it is never used unasked.
        output: a JSON file to write; ``dl.trigger`` and ``--with`` read it.

    Raises ``SettingError`` for fewer than 20 labelled traces, labels of one class alone, features that do not exist,
    are missing in a draft, have another shape there or are not finite.
    """
    path = None if output is None else as_path(output)
    labelled = several("labels", labels, Labelled, "give almanac.labels(...)")
    by_question = {one.question.strip(): one for one in labelled}
    known = [
        trace
        for trace in several("traces", traces, Trace, "give a list of traces")
        if trace.question.text.strip() in by_question and trace.ended != "error"
    ]
    if len(known) < LEAST:
        raise SettingError(
            f"{len(known)} traces are labelled; a trigger is fitted on {LEAST} or more: give more, or their labels"
        )
    told = [(number, *one) for number, trace in enumerate(known) for one in _drafts(trace, by_question, nlp)]
    if not told:
        raise SettingError(
            f"none of {len(known)} traces states a labelled fact in a known wording; look at their texts"
        )
    names = _chosen(use, [draft for _, draft, _ in told])
    x = np.concatenate([_measured(draft, names, len(missing)) for _, draft, missing in told])  # (m, f)
    y = np.concatenate([missing for _, _, missing in told])  # (m,)
    groups = np.concatenate([np.full(len(missing), number) for number, _, missing in told])  # (m,)
    if y.all() or not y.any():
        kind = "missing" if y.all() else "known"
        raise SettingError(f"all {len(y)} labelled tokens are {kind}; a trigger is fitted on tokens of both kinds")
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)  # a feature that never changes gets no weight
    z = (x - mean) / scale
    model = _regression().fit(z, y)
    terms = [(n, *map(float, row)) for n, *row in zip(names, model.coef_[0], mean, scale, strict=True)]
    made = define(name, terms, float(model.intercept_[0]), threshold=0.5)
    if path is not None:
        fitted_on = {
            "traces": len(known),
            "questions": fingerprint(trace.question for trace in known),
            "tokens": len(y),
            "missing": int(y.sum()),
            "area": _held_out(z, y, groups),
        }
        _write(path, made, fitted_on)
    return made


def trigger(path: str | Path) -> Logistic:
    """The trigger of a JSON file of ``fit_trigger``, under the name that it was given there.

    Raises ``SettingError`` for a file that cannot be read or is not one, naming what is wrong.
    """
    file = as_path(path)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{path}: cannot be read ({error}); give a file that dl.fit_trigger wrote") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise SettingError(f"{path}: is not a trigger of format {FORMAT}; give a file that dl.fit_trigger wrote")
    try:
        terms = [(one["feature"], *(float(one[key]) for key in ("weight", "mean", "scale"))) for one in record["terms"]]
        name, numbers = record["name"], [float(record[key]) for key in ("bias", "threshold")]
        if not all(isinstance(text, str) for text in (name, *(feature for feature, *_ in terms))):
            raise TypeError("a name is not a text")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SettingError(f"{path}: has no usable entry ({error}); fit the trigger again") from None
    for feature, *values in terms:
        if not (feature in FEATURES or feature.removeprefix(HIDDEN).isdigit()):
            raise SettingError(f"{path}: feature {feature!r} does not exist; one of {', '.join(FEATURES)}")
        if not all(map(math.isfinite, [*values, *numbers])) or values[2] <= 0:
            raise SettingError(f"{path}: the numbers {values} of {feature!r} cannot be used; fit the trigger again")
    return define(name, terms, *numbers)


# -- parts ------------------------------------------------------------------------------------------------------------


def _drafts(trace: Trace, labels: dict[str, Labelled], nlp: Any) -> Iterator[tuple[Draft, np.ndarray]]:
    """The drafts of a trace that state labelled facts, with (r,) bool for their first r tokens: missing or not."""
    method = restored(trace.method, nlp)
    for step, truth in zip(trace.steps, read_truths(trace, labels[trace.question.text.strip()]), strict=True):
        if truth is not None and truth.stated:
            draft = as_judged(trace, step, method)
            starts, stops = draft.offsets.T  # (n,), (n,)
            missing = np.zeros(int((starts < truth.ends[-1]).sum()), bool)  # (r,)
            for (start, is_missing), end in zip(truth.stated, truth.ends, strict=True):
                inside = (starts < end) & (stops > start)
                missing[inside[: len(missing)]] = is_missing
            yield draft, missing


def _chosen(use: Sequence[str] | None, drafts: Sequence[Draft]) -> list[str]:
    """The names of the features: those asked for, else all that every draft has; hidden states one by one."""
    attended = all(draft.made.attention is not None for draft in drafts)
    names = [name for name in FEATURES if name != "paid" or attended] if use is None else list(use)
    if "hidden" in names:
        widths = {None if draft.made.hidden is None else draft.made.hidden.shape[1] for draft in drafts}
        if len(widths) > 1 or None in widths:
            raise SettingError(
                f"the drafts' hidden states have widths {sorted(map(str, widths))}; ask with a trigger that needs "
                "'hidden', on one model"
            )
        names = [n for n in names if n != "hidden"] + [f"{HIDDEN}{i}" for i in range(widths.pop() or 0)]
    return names


def _measured(draft: Draft, names: Sequence[str], rows: int) -> np.ndarray:
    found = features(draft, names)  # (n, f)
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        t, f = bad[0]
        raise SettingError(
            f"feature {names[f]!r} is {found[t, f]} at token {t} ({draft.tokens[t]!r}) of {draft.text[:60]!r}; "
            "leave that trace or that feature out"
        )
    return found[:rows]


def _regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(class_weight="balanced", max_iter=1000)


def _held_out(z: np.ndarray, y: np.ndarray, groups: np.ndarray) -> float:
    """The ROC area over tokens of questions that were left out of the fit."""
    from sklearn.model_selection import GroupKFold

    scores = np.full(len(y), np.nan)  # (m,)
    for fit, held in GroupKFold(FOLDS).split(z, y, groups):
        if y[fit].any() and not y[fit].all():
            scores[held] = _regression().fit(z[fit], y[fit]).decision_function(z[held])
    seen = np.isfinite(scores)
    return roc_area(scores[seen], y[seen])


def _write(path: Path, made: Logistic, fitted_on: dict[str, Any]) -> None:
    terms = [dict(zip(("feature", "weight", "mean", "scale"), term, strict=True)) for term in made.terms]
    record = {"format": FORMAT, "name": made.name, "threshold": made.threshold, "bias": made.bias, "terms": terms}
    try:
        write_whole(path, (json.dumps(record | {"fitted_on": fitted_on}, indent=1) + "\n").encode())
    except OSError as error:
        raise SettingError(not_saved(path, error)) from error
