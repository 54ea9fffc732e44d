"""A trigger that is fitted on labelled text: scikit-learn's logistic regression over what a draft
has.

    lab = dl.Lab("HuggingFaceTB/SmolLM2-135M-Instruct", "wiki.jsonl")
    fit_trigger(lab, dl.Spans.load("mine.jsonl"))
    trace = lab.ask("Who directed The Ashen Rooftop?", when="fitted")

None of the three features is on a scale of its model, so a trigger that was fitted on one model
also serves on another one; find its threshold there by ``lab.budget`` (docs/results/triggers.md).
Add columns to ``features`` for more, such as ``draft.entropy`` or ``draft.received``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import dragin_lab as dl
from dragin_lab.study.spans import read_texts


def features(draft: dl.Draft) -> np.ndarray:
    """(n, 3) of each token: the log-odds against its word, whether that is a stop word, whether
    it opens a sentence.
    """
    log_p = np.array([draft.logprob[w.start : w.stop].sum() for w in draft.word_list])  # (w,)
    log_p = log_p.clip(np.log(1e-4), np.log1p(-1e-4))
    doubt = np.log(-np.expm1(log_p)) - log_p  # (w,) log((1 - p) / p)
    opens = np.diff(draft.sentence_of_word, prepend=-2) != 0  # (w,) bool
    word = draft.word_of_token  # (n,)
    return np.stack([doubt[word], draft.stop_word, opens[word]], axis=1)  # (n, 3)


def fit_trigger(lab: dl.Lab, spans: dl.Spans, name: str = "fitted") -> Any:
    """Enter a trigger that was fitted on labelled texts, as the lab's model reads them.

    Positive are the tokens of what is not supported; negative all others up to the end of the last
    span, because nobody labelled what comes after it.
    """
    pipeline = dl.method("wo-rag").pipeline
    rows, missing = [], []
    for _, _, own, draft in read_texts(lab.model, spans):
        labelled = 1 + max(int(tokens[-1]) for _, tokens in own)
        positive = np.zeros(len(draft), bool)  # (n,)
        for span, tokens in own:
            positive[tokens] |= span.missing
        rows.append(features(draft.read_by(pipeline))[:labelled])
        missing.append(positive[:labelled])
    x, y = np.concatenate(rows), np.concatenate(missing)  # (m, 3), (m,)
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(class_weight="balanced").fit(scaler.transform(x), y)
    weights = model.coef_[0] / scaler.scale_  # (3,)
    bias = float(model.intercept_[0] - weights @ scaler.mean_)

    @dl.when(name, threshold=0.5, source="logistic regression on labelled text")
    def probably_missing(draft: dl.Draft) -> np.ndarray:
        """A fact is probably missing: what the regression makes of the features, from 0 to 1."""
        return 1 / (1 + np.exp(-(features(draft) @ weights + bias)))  # (n,)

    return probably_missing
