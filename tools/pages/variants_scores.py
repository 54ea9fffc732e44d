"""Other readings of the same texts: each scores a prediction with one rule of the released code changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dragin_lab.core.answers import (
    ANSWER_PHRASE,
    ANSWER_PROMPT,
    cut_prediction,
    exact_match,
    extract_answer,
    normalize_answer,
    score_answer,
)
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.stops import find_answer_end

#: number on the page -> rules; "S0" is the released code's.
RULES = {
    "S0": "as released",
    "S1": "after “So the answer is” only",
    "S2": "not cut at `Question:`, `#10000000`, `Note:`",
    "S3": "to the end of its sentence",
    "S5": "neither yes nor no is wrong, not “no”",
    "S6": "the first gold answer only",
    "S7": "F1 without the rule for yes and no",
}


def rescored(row: Mapping[str, Any], rule: str, benchmark: str, pipeline: Pipeline) -> tuple[float, float]:
    """(EM, F1) of a prediction under one of ``RULES``; ``benchmark`` says how its answers are read."""
    text = _final_text(row, cut=rule != "S2")
    golds = row["gold"][:1] if rule == "S6" else row["gold"]
    if rule == "S1":
        text = _behind_so(text)
    if rule == "S3" and (end := find_answer_end(pipeline, text, ended=True)) is not None:
        text = text[:end]
    answer = extract_answer(text, benchmark)
    if rule == "S5" and benchmark == "strategyqa" and not _says_no(text) and answer == "no":
        return 0.0, 0.0
    if rule == "S7":
        return exact_match(answer, golds), max(_plain_f1(answer, gold) for gold in golds)
    scores = score_answer(answer, golds)
    return scores["em"], scores["f1"]


def _final_text(row: Mapping[str, Any], *, cut: bool) -> str:
    """The text that the answer is read from, the continuation asked for included."""
    text: str = row["text"].strip()
    text = cut_prediction(text) if cut else text
    if ANSWER_PHRASE in text or row["extraction"] is None:
        return text
    text += ANSWER_PROMPT + row["extraction"].strip()
    return cut_prediction(text, at_start=True) if cut else text


def _behind_so(text: str) -> str:
    """Nothing but what is said behind the phrase as the exemplars write it."""
    place = text.find(ANSWER_PROMPT.strip())
    return text[place:] if place >= 0 else ""


def _says_no(text: str) -> bool:
    place = text.find(ANSWER_PHRASE)
    return place >= 0 and text[place + len(ANSWER_PHRASE) + 1 :].strip()[:2].lower() == "no"


def _plain_f1(answer: str, gold: str) -> float:
    a, g = normalize_answer(answer).split(), normalize_answer(gold).split()
    same = sum((Counter(a) & Counter(g)).values())
    return 2 * same / (len(a) + len(g)) if same else 0.0
