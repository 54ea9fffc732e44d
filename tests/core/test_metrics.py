"""The normal form of answers, where predictions are cut, and what is refused (reference-behaviour §6)."""

from __future__ import annotations

import pytest

from dragin_lab.core.answers import cut_prediction, extract_answer, normalize_answer, score_answer
from dragin_lab.errors import SettingError


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Matrix", "matrix"),
        ("a  cat,\tan owl and THE end", "cat owl and end"),
        ("theatre another", "theatre another"),
        ("U.S.A.", "usa"),
        ("well-known", "wellknown"),
        ("Żuławski’s", "żuławski’s"),  # the typographic apostrophe is not ASCII punctuation
        ("1,984", "1984"),
        ("a-b", "ab"),
        ("The the", ""),
        ("", ""),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_no_golds_cannot_be_scored() -> None:
    with pytest.raises(SettingError, match="without gold"):
        score_answer("Bo", ())


@pytest.mark.parametrize(
    ("text", "cut", "at_start"),
    [
        ("It is Bo.", "It is Bo.", "It is Bo."),
        ("It is Bo.\nQuestion: Who?", "It is Bo.\n", "It is Bo.\n"),
        ("It #10000000 Note: Question:", "It ", "It "),
        ("Note: it", "Note: it", ""),
        ("Question: x Note: it", "Question: x ", ""),
        ("#1000000", "#1000000", "#1000000"),
        ("question: note:", "question: note:", "question: note:"),
        ("", "", ""),
    ],
)
def test_predictions_are_cut_where_the_model_goes_on_to_something_else(text: str, cut: str, at_start: str) -> None:
    assert cut_prediction(text) == cut
    assert cut_prediction(text, at_start=True) == at_start


def test_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="'squad' does not exist; one of 2wikimultihopqa, hotpotqa"):
        extract_answer("x", "squad")
