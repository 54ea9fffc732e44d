"""From generated text to scores, value by value: a table worked out by hand from the definition.

The definition is reference-behaviour §6 and the paper's Appendix B. A text goes the way it goes in
a run: cut, the answer read by the benchmark's rule, compared with every gold. F1 is written as
2·same / (words here + words there).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragin_lab.core.answers import (
    cut_prediction,
    extract_answer,
    is_readable,
    read_answer,
    score_answer,
)
from dragin_lab.data import datasets
from dragin_lab.errors import SettingError

WIKI, HOTPOT, STRATEGY, IIRC = datasets.BENCHMARKS
SO = "So the answer is "
DATA = Path(os.environ.get("DRAGIN_LAB_DATA") or "data")

#: benchmark, generated text, golds, answer read, EM, F1, precision, recall
CASES = {
    # articles
    "an article in front": (HOTPOT, f"{SO}The Beatles.", ["Beatles"], "The Beatles", 1, 1, 1, 1),
    "an article inside": (
        WIKI,
        f"{SO}Elm of the Road.",
        ["Elm of Road"],
        "Elm of the Road",
        1,
        1,
        1,
        1,
    ),
    "an article joined by a hyphen does not count": (
        HOTPOT,
        f"{SO}A-Team.",
        ["Team"],
        "A-Team",
        0,
        0,
        0,
        0,
    ),
    "nothing but an article": (HOTPOT, f"{SO}the.", ["Ek"], "the", 0, 0, 0, 0),
    # punctuation and white space
    "a full stop": (WIKI, f"{SO}Bo Ek.", ["Bo Ek"], "Bo Ek", 1, 1, 1, 1),
    "initials": (HOTPOT, f"{SO}J.R.R. Tolkien.", ["JRR Tolkien"], "J.R.R. Tolkien", 1, 1, 1, 1),
    "initials apart": (
        HOTPOT,
        f"{SO}J. R. R. Tolkien.",
        ["JRR Tolkien"],
        "J. R. R. Tolkien",
        0,
        2 / 6,
        1 / 4,
        1 / 2,
    ),
    "a hyphen joins": (
        HOTPOT,
        f"{SO}Anne-Marie Ek.",
        ["Anne Marie Ek"],
        "Anne-Marie Ek",
        0,
        2 / 5,
        1 / 2,
        1 / 3,
    ),
    "an ASCII apostrophe goes": (HOTPOT, f"{SO}Ek's Road.", ["Eks Road"], "Ek's Road", 1, 1, 1, 1),
    "punctuation alone": (HOTPOT, f"{SO}?!.", ["Ek"], "?!", 0, 0, 0, 0),
    # unicode
    "marks are not left out": (
        WIKI,
        f"{SO}Ogedei Khan.",
        ["Ögedei Khan"],
        "Ogedei Khan",
        0,
        2 / 4,
        1 / 2,
        1 / 2,
    ),
    "a typographic apostrophe stays": (
        HOTPOT,
        f"{SO}Ek’s Road.",
        ["Ek's Road"],
        "Ek’s Road",
        0,
        2 / 4,
        1 / 2,
        1 / 2,
    ),
    "an en dash stays": (WIKI, f"{SO}1945–46.", ["1945-46"], "1945–46", 0, 0, 0, 0),
    "a no-break space parts words": (
        HOTPOT,
        f"{SO}Bo\u00a0Ek.",
        ["Bo Ek"],
        "Bo\u00a0Ek",
        1,
        1,
        1,
        1,
    ),
    # yes and no
    "yes": (HOTPOT, f"{SO}yes.", ["yes"], "yes", 1, 1, 1, 1),
    "no for yes": (HOTPOT, f"{SO}no.", ["yes"], "no", 0, 0, 0, 0),
    "yes and more": (HOTPOT, f"{SO}yes, both.", ["yes"], "yes, both", 0, 0, 0, 0),
    "no inside an answer": (
        HOTPOT,
        f"{SO}Coolie No. 1.",
        ["Coolie No 1"],
        "Coolie No. 1",
        1,
        1,
        1,
        1,
    ),
    # StrategyQA: accuracy is the exact match of yes or no
    "StrategyQA yes": (STRATEGY, f"Pears float. {SO}yes.", ["yes"], "yes", 1, 1, 1, 1),
    "StrategyQA no": (STRATEGY, f"{SO}no.", ["no"], "no", 1, 1, 1, 1),
    "StrategyQA without the phrase": (STRATEGY, "Yes, a pear floats.", ["yes"], "", 0, 0, 0, 0),
    "StrategyQA with an answer that is neither": (
        STRATEGY,
        f"{SO}maybe.",
        ["no"],
        "no",
        1,
        1,
        1,
        1,
    ),
    "StrategyQA looks at three letters": (STRATEGY, f"{SO}Yessir.", ["yes"], "yes", 1, 1, 1, 1),
    "StrategyQA with a colon": (STRATEGY, "the answer is: yes", ["yes"], "no", 0, 0, 0, 0),
    "StrategyQA with a quote": (STRATEGY, f'{SO}"yes".', ["yes"], "no", 0, 0, 0, 0),
    # noanswer
    "noanswer": (IIRC, f"{SO}noanswer", ["noanswer"], "noanswer", 1, 1, 1, 1),
    "noanswer for a name": (IIRC, f"{SO}noanswer", ["Bo Ek"], "noanswer", 0, 0, 0, 0),
    # several golds, aliases
    "the second gold": (IIRC, f"{SO}Li Wu", ["Bo Ek", "Li Wu"], "Li Wu", 1, 1, 1, 1),
    "half of either gold": (
        IIRC,
        f"{SO}Bo Wu",
        ["Bo Ek", "Li Wu"],
        "Bo Wu",
        0,
        2 / 4,
        1 / 2,
        1 / 2,
    ),
    "precision from one gold, recall from another": (
        IIRC,
        f"{SO}Bo Ek Li",
        ["Bo", "Bo Ek Li Wu Ya Ze"],
        "Bo Ek Li",
        0,
        6 / 9,
        1,
        1,
    ),
    "all spans in one answer": (
        IIRC,
        f"{SO}Bo and Li",
        ["Bo", "Li"],
        "Bo and Li",
        0,
        2 / 4,
        1 / 3,
        1,
    ),
    "an alias": (WIKI, f"{SO}USA.", ["America", "United States", "U.S.A."], "USA", 1, 1, 1, 1),
    # numbers and dates
    "a thousands comma": (IIRC, f"{SO}1,901", ["1901"], "1,901", 1, 1, 1, 1),
    "a sign goes too": (IIRC, f"{SO}-5", ["5"], "-5", 1, 1, 1, 1),
    "a unit that the gold has not": (IIRC, f"{SO}53 years", ["53"], "53 years", 0, 2 / 3, 1 / 2, 1),
    "a date in another order": (
        WIKI,
        f"{SO}June 19, 2013.",
        ["19 June 2013"],
        "June 19, 2013",
        0,
        1,
        1,
        1,
    ),
    # words counted
    "a word twice counts twice": (
        HOTPOT,
        f"{SO}Bo Bo Ek.",
        ["Bo Bo"],
        "Bo Bo Ek",
        0,
        4 / 5,
        2 / 3,
        1,
    ),
    "another order": (HOTPOT, f"{SO}Ek Bo.", ["Bo Ek"], "Ek Bo", 0, 1, 1, 1),
    # empty predictions
    "an empty gold": (HOTPOT, f"{SO}Bo.", [""], "Bo", 0, 0, 0, 0),
    "nothing written": (HOTPOT, "", ["Bo"], "", 0, 0, 0, 0),
    "nothing written, StrategyQA": (STRATEGY, "", ["no"], "", 0, 0, 0, 0),
    "nothing after the phrase": (IIRC, "So the answer is", ["Bo"], "", 0, 0, 0, 0),
    "nothing, and a gold of nothing but an article": (HOTPOT, "", ["The"], "", 1, 0, 0, 0),
    # the phrase
    "no phrase: 2Wiki takes the text": (WIKI, "Bo Ek.", ["Bo Ek"], "Bo Ek", 1, 1, 1, 1),
    "no phrase: HotpotQA takes nothing": (HOTPOT, "Bo Ek.", ["Bo Ek"], "", 0, 0, 0, 0),
    "a phrase in upper case does not count": (HOTPOT, "The Answer Is Bo", ["Bo"], "", 0, 0, 0, 0),
    "the first phrase counts": (
        HOTPOT,
        f"{SO}Bo. {SO}Ek.",
        ["Ek"],
        "Bo. So the answer is Ek",
        0,
        2 / 6,
        1 / 5,
        1,
    ),
    "the text after the sentence belongs to it": (
        WIKI,
        f"{SO}Bo. It is.",
        ["Bo"],
        "Bo. It is",
        0,
        2 / 4,
        1 / 3,
        1,
    ),
    "another question is cut off": (HOTPOT, f"{SO}Bo.\nQuestion: Who?", ["Bo"], "Bo", 1, 1, 1, 1),
    # special tokens
    "the end of a sequence": (WIKI, f"{SO}Bo.</s>", ["Bo"], "Bo", 1, 1, 1, 1),
    "the end of a text, IIRC": (IIRC, f"{SO}Bo.\n<|endoftext|>", ["Bo"], "Bo", 1, 1, 1, 1),
    "an end twice": (HOTPOT, f"{SO}Bo.</s></s>", ["Bo"], "Bo.</s>", 0, 0, 0, 0),
    "a line before the end": (HOTPOT, f"{SO}Bo.\n</s>", ["Bo"], "Bo.", 1, 1, 1, 1),
    "a line before the end, IIRC": (IIRC, f"{SO}Bo.\n</s>", ["Bo"], "Bo", 1, 1, 1, 1),
    "another token stays": (HOTPOT, f"{SO}Bo.<|im_end|>", ["Bo"], "Bo.<|im_end|>", 0, 0, 0, 0),
}


@pytest.mark.parametrize("case", list(CASES))
def test_text_to_scores(case: str) -> None:
    benchmark, text, golds, answer, em, f1, precision, recall = CASES[case]
    read = extract_answer(cut_prediction(text.strip()), benchmark)
    assert read == answer
    expected = {"em": em, "f1": f1, "precision": precision, "recall": recall}
    assert score_answer(read, golds, released=True) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *(
            (mark.format("Yes"), "yes")
            for mark in ("**{}**.", '"{}".', "({})", "*{}*", "<b>{}</b>", r"$\boxed{{{}}}$")
        ),
        ("**No**, as", "no"),
        ("`true`.", "yes"),
        ("False", "no"),
        ("Yes, because", "yes"),
        (": YES", "yes"),
        ("not true", "no"),
        ("nobody", "no"),
        ("\n\nYes", "yes"),
    ],
)
def test_the_papers_read_yes_or_no_in_any_markup(text: str, answer: str) -> None:
    assert read_answer(f"The answer is {text}", STRATEGY) == answer
    assert is_readable(f"The answer is {text}", STRATEGY) == (text not in ("not true", "nobody"))


def test_the_papers_read_the_phrase_in_any_capitals() -> None:
    assert read_answer("It is. The Answer is Bo Ek.", HOTPOT) == "Bo Ek"
    assert read_answer("It is Bo.", HOTPOT) == read_answer("Yes.", STRATEGY) == ""


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{Bo Ek}",
        r"$\boxed{\text{Bo Ek}}$",
        r"\boxed{\textbf{Bo Ek}}, as shown",
        r"\mathrm{Bo} \emph{Ek}",
        "<b>Bo Ek</b>",
        "<b><i>Bo Ek</i></b>",
        "<b>Bo Ek",
        "<answer> Bo Ek. </answer>",
        "[Bo Ek](http://a.b/c_(d))",
        "Bo Ek[1][2]",
        "Bo Ek [1], [2]",
        "“Bo Ek”",
        "Bo Ek. [1, 3]",
        "Bo Ek【2】",
        "<b>Bo Ek</b>\u200b [2]",
    ],
)
def test_what_stands_around_an_answer_is_no_part_of_it_in_the_papers_variant(text: str) -> None:
    assert score_answer(read_answer(f"The answer is {text}."), ["Bo Ek"])["em"] == 1
    assert extract_answer(f"the answer is {text}") == text  # as released


@pytest.mark.parametrize(
    "text", ["[1]", "<b>", "vector<int>", "x < y > z", r"\frac{1}{2}", "[1905]", "İzmir", "D.C."]
)
def test_what_is_nothing_else_stays_in_an_answer(text: str) -> None:
    assert read_answer(f"The answer is {text}.") == text


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "f1"),
    [
        ("", "The The", 0, 0),
        ("the The", "The The", 1, 1),
        ("A", "The", 0, 0),
        ("!!!", "!!!", 1, 1),
        ("Beyonce\u0301", "Beyonc\u00e9", 1, 1),
        ("北京", "北京市", 0, 0.8),
        ("北京。", "北京", 1, 1),
        ("“北京 市”", "《北京市》", 1, 1),
        ("東京タワー", "東京タワ", 0, 8 / 9),
        ("Bo Ek！", "Bo Ek", 1, 1),
        ("Ek’s Road", "Ek's Road", 0, 0.5),
        ("A股 Bo", "a股", 0, 0.8),
        ("Istanbul", "İSTANBUL", 1, 1),
        *(("Zurich", f"Zu{mark}rich{mark}", 1, 1) for mark in "\u200b\u00ad\u200e\u2060\ufeff"),
        ("a\u0331 x", "x", 0, 2 / 3),  # a letter with a mark is no article
        ("ที่", "ทา", 0, 0),  # a vowel and a tone belong to their letter
    ],
)
def test_scores_of_canonical_texts_and_of_ideographs(
    prediction: str, gold: str, em: float, f1: float
) -> None:
    scores = score_answer(prediction, [gold])
    assert (scores["em"], scores["f1"]) == pytest.approx((em, f1))


@pytest.mark.parametrize(
    "source", [*datasets.BENCHMARKS, *(f"almanac/{name}" for name in datasets.BENCHMARKS)]
)
def test_every_gold_answer_scores_in_full(source: str) -> None:
    benchmark = source.removeprefix("almanac/")
    if source == benchmark and not (DATA / benchmark / datasets.FILES[benchmark]).is_file():
        pytest.skip(f"{benchmark} is not in DRAGIN_LAB_DATA")
    questions = datasets.load_questions(source)
    for question in questions:
        for gold in question.golds:
            read = extract_answer(cut_prediction(f"{SO}{gold}."), benchmark)
            scores = score_answer(read, question.golds)
            assert (scores["em"], scores["f1"]) == (1.0, 1.0), (question.id, gold, read)


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
def test_predictions_are_cut_where_the_model_goes_on_to_something_else(
    text: str, cut: str, at_start: str
) -> None:
    assert cut_prediction(text) == cut
    assert cut_prediction(text, at_start=True) == at_start


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
        ("So the answer is So the answer is", "hotpotqa", False),
    ],
)
def test_an_end_mark_is_no_part_of_an_answer(text: str, rule: str, there: bool) -> None:
    assert is_readable(text, rule) == there
