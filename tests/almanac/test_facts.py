"""Labels that say of every sentence which of its words carry a fact, and older ones that do not."""

from __future__ import annotations

from typing import Any

import pytest

from dragin_lab.almanac.facts import LabelError, Sentence, parse_labels

ROW: dict[str, Any] = {
    **dict.fromkeys(("qid", "benchmark", "split", "type", "question", "answer"), "x"),
    "knowledge": "known",
    "reasoning": "Ada was born in 1900. So it is.",
    "facts": [],
}
SENTENCES = [
    {"start": 0, "end": 21, "carrying": [[16, 20]], "concludes": False},
    {"start": 22, "end": 31, "carrying": [], "concludes": True},
]


def test_sentences_are_read_where_there_are_any() -> None:
    assert parse_labels("a file", ROW).sentences == ()
    assert parse_labels("a file", ROW | {"sentences": SENTENCES}).sentences == (
        Sentence(0, 21, ((16, 20),), False),
        Sentence(22, 31, (), True),
    )


@pytest.mark.parametrize("span", [[21, 25], [16, 16], [-2, 3]])
def test_words_outside_their_sentence_are_refused(span: list[int]) -> None:
    rows = [SENTENCES[0] | {"carrying": [span]}]
    with pytest.raises(LabelError, match=rf"a file, sentence 1: characters {span[0]} to {span[1]} are not within"):
        parse_labels("a file", ROW | {"sentences": rows})
