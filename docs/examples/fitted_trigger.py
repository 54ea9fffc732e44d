"""A trigger that is fitted on labelled text: scikit-learn's logistic regression over what a draft
has.

    lab = dl.Lab("HuggingFaceTB/SmolLM2-135M-Instruct", "wiki.jsonl")
    fit_trigger(lab, pd.read_json("mine.jsonl", lines=True))
    trace = lab.ask("Who directed The Ashen Rooftop?", when="fitted")

The file has spans as ``judge_spans.py`` reads them, which lies beside this file; both need
``pip install scikit-learn``. None of the three features is on a scale of its model, so a trigger
that was fitted on one model also serves on another one; find its threshold there by ``lab.budget``
(docs/results/triggers.md). Add columns to ``features`` for more, such as ``draft.entropy`` or
``draft.received``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from judge_spans import find_tokens
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import dragin_lab as dl
from dragin_lab.trace.trace import Prompt


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


def fit_trigger(lab: dl.Lab, spans: pd.DataFrame, name: str = "fitted") -> Any:
    """Enter a trigger that was fitted on labelled texts, as the lab's model reads them.

    Positive are the tokens of what is not supported; negative all others up to the end of the last
    span, because nobody labelled what comes after it.
    """
    pipeline = dl.method("wo-rag").pipeline
    rows, missing = [], []
    for (prompt, text), own in spans.groupby(["prompt", "text"], sort=False):
        draft = lab.model.score(Prompt(prompt), text).read_by(pipeline)
        labelled, positive = 0, np.zeros(len(draft), bool)  # (n,)
        for span in own.itertuples():
            tokens = find_tokens(draft, text, span.start, span.end)
            positive[tokens] |= span.label == "not supported"
            labelled = max(labelled, tokens[-1] + 1)
        rows.append(features(draft)[:labelled])
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
