"""Does a trigger fire where a text is not supported? Scores of labelled spans, by every trigger.

    pip install scikit-learn

    lab = dl.Lab("HuggingFaceTB/SmolLM2-135M-Instruct", "wiki.jsonl")
    scored = judge_spans(lab, pd.read_json("corpora/smollm2_facts.jsonl.gz", lines=True))
    rate_triggers(scored)

A row is a span: the prompt, the text after it with its leading space, the characters ``start`` to
``end`` of the text, and its label, "supported" or "not supported".
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

import dragin_lab as dl
from dragin_lab.trace.trace import Prompt
from dragin_lab.views import theme

TRIGGERS = ["rind", "entropy", "probability", "margin", "random"]


def judge_spans(lab: dl.Lab, spans: pd.DataFrame, triggers: list[str] = TRIGGERS) -> pd.DataFrame:
    """The spans with a column for each trigger: the highest score of the tokens in a span."""
    pipeline = dl.method("wo-rag").pipeline
    judges = [dl.method("dragin", when=name, threshold=0.0).trigger for name in triggers]
    missing = spans["label"] == "not supported"
    scored = spans.assign(missing=missing, **dict.fromkeys(triggers, 0.0))
    for (prompt, text), own in spans.groupby(["prompt", "text"], sort=False):
        draft = lab.model.score(Prompt(prompt), text).read_by(pipeline)
        scores = np.stack([judge.score_tokens(draft) for judge in judges])  # (triggers, n)
        for span in own.itertuples():
            tokens = find_tokens(draft, text, span.start, span.end)
            scored.loc[span.Index, triggers] = scores[:, tokens].max(axis=1)
    return scored


def find_tokens(draft: dl.Draft, text: str, start: int, end: int) -> np.ndarray:
    """(m,) int, the tokens that meet these characters of a text, as the model has read it."""
    place = draft.text.find(text.strip())
    if place < 0:
        raise ValueError(f"the tokenizer gives {text[:40]!r} back otherwise; normalise it (NFC)")
    moved = place - text.find(text.strip())
    begins, ends = draft.offsets.T  # (n,) each
    return np.flatnonzero((begins < end + moved) & (ends > start + moved))


def rate_triggers(scored: pd.DataFrame, triggers: list[str] = TRIGGERS) -> pd.DataFrame:
    """Of each trigger the area below its ROC curve, and its average precision; the best first."""
    rows = []
    for name in triggers:
        known = scored["missing"], scored[name]
        rows.append((name, roc_auc_score(*known), average_precision_score(*known)))
    table = pd.DataFrame(rows, columns=["trigger", "area", "average_precision"])
    return table.sort_values("area", ascending=False, ignore_index=True)


def draw_roc(scored: pd.DataFrame, triggers: list[str] = TRIGGERS) -> theme.Figure:
    """The ROC curve of each trigger: a point for each θ."""
    figure = theme.Figure()
    for name in triggers:
        alarms, found, _ = roc_curve(scored["missing"], scored[name])
        figure.add_scatter(x=alarms, y=found, name=name)
    figure.update_layout(xaxis_title="supported that fire", yaxis_title="missing that fire")
    return theme.finish(figure, "Fired where it was missing, and where it was not", 440)


def read_labels(labels: list, template: dl.PromptTemplate) -> pd.DataFrame:
    """The facts of Almanac's gold reasonings (``dl.almanac.labels``) as spans."""
    rows = []
    for one in labels:
        prompt = template.render(one.question).text
        text = f" {one.reasoning} So the answer is {one.answer}."
        for fact in one.facts:  # the reasoning has no space before it
            label = "not supported" if fact.missing else "supported"
            rows.append((prompt, text, fact.start + 1, fact.end + 1, label))
    return pd.DataFrame(rows, columns=["prompt", "text", "start", "end", "label"])
