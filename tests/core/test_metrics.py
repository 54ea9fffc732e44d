"""Extraction and scores, value by value (reference-behaviour §6)."""

from __future__ import annotations

import pytest

from dragin_lab.core.answers import cut_prediction, extract_answer, is_readable, normalize_answer, score_answer
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


@pytest.mark.parametrize(
    ("prediction", "golds", "em", "f1", "precision", "recall"),
    [
        ("The Matrix.", ("matrix",), 1, 1, 1, 1),
        ("Bo Ek", ("Bo",), 0, 2 / 3, 1 / 2, 1),
        ("Bo", ("Bo Ek Li",), 0, 1 / 2, 1, 1 / 3),
        ("Bo Bo", ("Bo Ek",), 0, 1 / 2, 1 / 2, 1 / 2),
        ("film", ("movie",), 0, 0, 0, 0),
        # Each measure is the best over the golds on its own.
        ("a b c x", ("x", "b c x y z w"), 0, 2 * (3 / 3 * 3 / 6) / (3 / 3 + 3 / 6), 1, 1),
        ("Malgorzata Braunek", ("Małgorzata Braunek", "Malgorzata Braunek"), 1, 1, 1, 1),
        ("yes", ("yes",), 1, 1, 1, 1),
        ("yes it is", ("yes",), 0, 0, 0, 0),
        ("no", ("no one",), 0, 0, 0, 0),
        ("noanswer", ("noanswer",), 1, 1, 1, 1),
        ("yes it is", ("yes", "it is"), 0, 2 * (2 / 3) / (1 + 2 / 3), 2 / 3, 1),
        ("", ("Bo",), 0, 0, 0, 0),
        ("Bo", ("",), 0, 0, 0, 0),
        ("the", ("a",), 1, 0, 0, 0),
        ("1,984", ("1984",), 1, 1, 1, 1),
        ("ŻUŁAWSKI", ("Żuławski",), 1, 1, 1, 1),
        ("電影", ("電影",), 1, 1, 1, 1),
    ],
)
def test_scores(prediction: str, golds: tuple[str, ...], em: float, f1: float, precision: float, recall: float) -> None:
    expected = {"em": em, "f1": f1, "precision": precision, "recall": recall}
    assert score_answer(prediction, golds) == pytest.approx(expected)


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


@pytest.mark.parametrize(
    ("text", "rule", "answer"),
    [
        ("So the answer is Bo Ek.", "2wikimultihopqa", "Bo Ek"),
        ("So the answer is Bo. And more.", "2wikimultihopqa", "Bo. And more"),
        ("So the answer is: Bo", "hotpotqa", "Bo"),
        ("the answer is a. So the answer is b.", "hotpotqa", "a. So the answer is b"),
        ("So the answer is Bo.</s>", "2wikimultihopqa", "Bo"),
        ("So the answer is Bo.<|endoftext|>", "hotpotqa", "Bo"),
        ("So the answer is Bo.<|endoftext|></s>", "hotpotqa", "Bo"),
        ("So the answer is Bo..", "hotpotqa", "Bo."),
        ("So the answer is Bo.</s></s>", "hotpotqa", "Bo.</s>"),
        ("So the answer is Bo.\n</s>", "iirc", "Bo"),
        ("So the answer is Bo.\n</s>", "hotpotqa", "Bo."),
        ("It is Bo.", "2wikimultihopqa", "It is Bo"),
        ("It is Bo.", "hotpotqa", ""),
        ("It is Bo.", "iirc", ""),
        ("It is Bo.", "strategyqa", "no"),
        ("So the answer is yes.", "strategyqa", "yes"),
        ("So the answer is YES, it is", "strategyqa", "yes"),
        ("So the answer is yesterday", "strategyqa", "yes"),
        ("So the answer is no. yes", "strategyqa", "no"),
        ("So the answer is", "hotpotqa", ""),
        ("The Answer Is Bo", "hotpotqa", ""),
    ],
)
def test_answers_are_extracted_by_the_benchmarks_rule(text: str, rule: str, answer: str) -> None:
    assert extract_answer(text, rule) == answer


def test_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="'squad' does not exist; one of 2wikimultihopqa, hotpotqa"):
        extract_answer("x", "squad")


@pytest.mark.parametrize(
    ("text", "rule", "there"),
    [
        ("So the answer is no.</s>", "strategyqa", True),
        ("So the answer is Yes, as it is.", "strategyqa", True),
        ("So the answer is nobody.", "strategyqa", False),
        ("So the answer is Bo.</s>", "hotpotqa", True),
        ("So the answer is </s>", "hotpotqa", False),
        ("So the answer is <|endoftext|>", "iirc", False),
        ("It is Bo.", "hotpotqa", False),
    ],
)
def test_an_end_mark_is_no_part_of_an_answer(text: str, rule: str, there: bool) -> None:
    assert is_readable(text, rule) == there
