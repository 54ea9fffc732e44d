"""Worked examples from a file: what is read, and what is refused with the entry that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragin_lab.core.answers import ANSWER_PHRASE, FORMS, extract_answer
from dragin_lab.core.prompts import Exemplar
from dragin_lab.data.exemplars import SHOTS, among_exemplars, load_exemplars
from dragin_lab.errors import SettingError

GOOD = "- question: Is ice cold?\n  rationale: Ice is frozen.\n  answer: 'yes'\n"


# -- the package's own sets -------------------------------------------------------------------------------------------


def whole_set() -> list[Exemplar]:
    return [e for name in SHOTS for e in load_exemplars(name)]


def test_the_package_has_a_set_for_each_benchmark() -> None:
    for name, count in (("2wikimultihopqa", 6), ("hotpotqa", 8), ("strategyqa", 6), ("iirc", 8)):
        examples = load_exemplars(name)
        assert len(examples) == len({e.question for e in examples}) == count == SHOTS[name]
    assert {e.answer for e in load_exemplars("strategyqa")} == {"yes", "no"}


@pytest.mark.parametrize("exemplar", whole_set(), ids=lambda e: e.question[:40])
def test_an_exemplar_reasons_in_sentences_to_its_answer(exemplar: Exemplar) -> None:
    assert exemplar.question.endswith("?")
    assert exemplar.rationale.endswith(".")
    assert ANSWER_PHRASE not in exemplar.rationale
    assert "\n" not in exemplar.question + exemplar.rationale + exemplar.answer
    assert exemplar.answer == exemplar.answer.strip(" .")
    assert exemplar.answer in ("yes", "no") or exemplar.answer in exemplar.rationale
    rule = "strategyqa" if exemplar.answer in ("yes", "no") else "iirc"
    assert extract_answer(FORMS["reasoning"].exemplar(exemplar).strip(), rule) == exemplar.answer


def test_a_file_of_a_sets_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    more = '[{"question": "Is ice cold?", "rationale": "Ice is frozen.", "answer": "yes", "more": 1}]'
    for text in (GOOD, more):
        Path("iirc").write_text(text, encoding="utf-8")
        assert load_exemplars("iirc") == (Exemplar("Is ice cold?", "Ice is frozen.", "yes"),)
    for missing in ("no.yaml", tmp_path):
        with pytest.raises(SettingError, match=r"No such file|Is a directory"):
            load_exemplars(missing)


def test_a_question_among_the_worked_examples_is_found_however_it_is_spelt() -> None:
    asked = [("1", "Who made Kor?"), ("2", "who made  KOR"), ("3", "“Who made Ko\u00adr?”"), ("4", "Who?"), ("5", "?")]
    assert among_exemplars(asked, ["Who made Kor?", "…"]) == ["1", "2", "3"]
