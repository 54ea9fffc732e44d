"""Doubt at a call: how probable it is that the model opens one, and how improbable what it asks for is.

For models that call a search by themselves (Search-R1, FLARE-instruct). Both can be a trigger of any loop, and their
scores are those that the heatmap shows of a trace that was asked with them. The default θ are round numbers.
"""

from __future__ import annotations

import re

import numpy as np

from dragin_lab.core.custom import when
from dragin_lab.core.scores import doubts
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Draft


@when("call-opens", threshold=0.1, source="the likeliest tokens in each place")
def call_opens(draft: Draft, opens: str = "<search>") -> np.ndarray:
    """The model thinks of a search: the probability, among the likeliest tokens, of those that open a call."""
    if len(draft.alternative_tokens) != len(draft):
        raise SettingError(
            "the probability of a call takes the texts of the likeliest tokens; load with alternatives=2"
        )
    texts = np.array([[text.strip() for text in texts] for texts in draft.alternative_tokens], dtype=str)  # (n, k)
    begins = np.char.startswith(texts, opens) | ((texts != "") & np.char.startswith(opens, texts))  # (n, k)
    return (draft.alternative_probs * begins).sum(axis=-1) if len(draft) else np.zeros(0)  # (n,)


@when("call-doubt", threshold=0.5, source="FLARE §3.2, on the words of a call")
def call_doubt(draft: Draft, opens: str = "<search>", closes: str = "</search>") -> np.ndarray:
    """What the model asks for is improbable: 1 - p of a token between the marks of a call, 0 of any other."""
    inside = np.zeros(len(draft), bool)  # (n,)
    starts, stops = draft.offsets.T  # (n,), (n,)
    for match in re.finditer(rf"{re.escape(opens)}(.*?)(?:{re.escape(closes)}|\Z)", draft.text, re.DOTALL):
        a, b = match.span(1)
        inside |= (starts < b) & (stops > a)
    return np.where(inside, doubts(draft.logprob), 0.0)  # (n,)
