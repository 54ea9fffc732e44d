"""Worked examples and the forms of answers in prompts, and which prompt a model gets for a
method.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.almanac import default_exemplars, exemplars_by_form
from dragin_lab.core.answers import ANSWER_PHRASE, FORMS, extract_answer
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.data.exemplars import (
    SHOTS,
    SHOWN_FORMS,
    among_exemplars,
    load_exemplars,
    load_template,
)
from dragin_lab.errors import SettingError
from dragin_lab.run.setup import default_template, template_for

SKY = Exemplar("Is the sky blue?", "It is.", "yes")
CALL = Exemplar("Who made Ma?", "Ma is by [Search(maker of Ma)] Bo.", "Bo")
ASKED = Exemplar(
    "Who made Ma?",
    "Are follow up questions needed here: Yes.\nFollow up: Who made Ma?\nIntermediate answer: Bo"
    " made it.",
    "Bo",
)
PLAIN, INSTRUCT, ASK = dl.method("dragin"), dl.method("flare-instruct"), dl.method("self-ask")


def model(embedded: bool = False) -> ScriptedModel:
    lm = ScriptedModel([Say(" So the answer is Bo.\nHe")])
    lm.exemplars = exemplars_by_form() if embedded else {}
    return lm


# -- forms in a prompt -----------------------------------------------------------------------------


def test_a_prompt_is_laid_out_by_its_form() -> None:
    prompt = PromptTemplate(
        (SKY, CALL), form="search", preamble="Two skills.\n", instruction="Use both.\n"
    )
    assert (
        prompt.render("Who?", " It").text
        == "Two skills.\nQuestion: Is the sky blue?\nAnswer (with step-by-step): It is. So the"
        " answer is yes.\nQuestion: Who made Ma?\nAnswer (with step-by-step & Search): Ma is by"
        " [Search(maker of Ma)] Bo. So the answer is Bo.\nUse both.\nQuestion: Who?\nAnswer"
        " (with step-by-step & Search): It"
    )
    label = "Are follow up questions needed here:"
    # the label stands there once
    for rationale in (ASKED.rationale, ASKED.rationale.removeprefix(f"{label} ")):
        shot = Exemplar(ASKED.question, rationale, ASKED.answer)
        assert (
            PromptTemplate((shot,), form="self-ask").render("Who?", " Yes.").text
            == f"Question: Who made Ma?\n{label} Yes.\nFollow up: Who made Ma?\nIntermediate"
            f" answer: Bo made it.\nSo the final answer is: Bo.\nQuestion: Who?\n{label} Yes."
        )
    with pytest.raises(SettingError, match="form 'x' does not exist"):
        PromptTemplate(form="x")


@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if not form.task])
def test_the_answer_of_an_exemplar_is_read_back(form: str) -> None:
    worked = FORMS[form].worked(ASKED)
    assert extract_answer(worked, phrase=FORMS[form].phrase) == "Bo"
    assert (
        extract_answer(worked.split(" Bo.")[0].rpartition("\n")[0], "iirc", FORMS[form].phrase)
        == ""
    )
    assert extract_answer(f"It is.{FORMS[form].request} Bo.", phrase=FORMS[form].phrase) == "Bo"


# -- which prompt a model gets ---------------------------------------------------------------------


@pytest.mark.parametrize("form", SHOWN_FORMS)
def test_the_packages_own_sets_show_their_form(form: str) -> None:
    template = load_template(form)
    text = template.render("Who?").text
    assert 3 <= len(template.exemplars) <= 8
    if form == "search":
        # once where the skill is told, three times where it is shown
        assert template.preamble.count("[Search(") == 4
        assert "[Search(term)]" in template.instruction
        assert text.index("Skill 1") < text.index("Skill 2") < text.index("Now use both")
        assert not FORMS[form].shown(template.exemplars)
    else:
        assert all(exemplar.rationale.count("Follow up:") == 2 for exemplar in template.exemplars)
        assert text.count("Intermediate answer:") == 2 * len(template.exemplars)
        assert text.count(FORMS[form].label) == len(template.exemplars) + 1


def test_defaults() -> None:
    assert default_template(model()) == default_template(model(), PLAIN) == PromptTemplate()
    assert default_template(model(), INSTRUCT) == load_template("search")
    assert default_template(model(), ASK) == load_template("self-ask")
    embedded = {
        m.trigger.form: default_template(model(embedded=True), m) for m in (PLAIN, INSTRUCT, ASK)
    }
    for form, template in embedded.items():
        assert template == PromptTemplate(default_exemplars(form), form=form)
        assert len(template.exemplars) == 2
        assert FORMS[form].shown(template.exemplars)


def test_what_is_given_is_taken_where_it_shows_the_form_or_stands_behind_the_search_skill() -> None:
    given = PromptTemplate((CALL,), instruction="I.\n", layout="flare", answer_rule="iirc")
    assert template_for(INSTRUCT, model(), given) == replace(given, form="search")  # type: ignore[arg-type]
    assert template_for(PLAIN, model(), given) == given  # type: ignore[arg-type]
    plain, own = replace(given, exemplars=(SKY,)), default_template(model(), INSTRUCT)  # type: ignore[arg-type]
    shown = template_for(INSTRUCT, model(), plain)  # type: ignore[arg-type]
    assert (shown.exemplars, shown.preamble, shown.answer_rule) == ((SKY,), own.preamble, "iirc")
    assert shown.instruction == own.instruction + "I.\n"
    embedded = template_for(INSTRUCT, model(embedded=True), plain)  # type: ignore[arg-type]
    assert (embedded.exemplars, embedded.preamble) == (default_exemplars("search"), "")


def test_exemplars_without_follow_ups_are_replaced_and_the_trace_says_so() -> None:
    given = PromptTemplate((SKY,), answer_rule="iirc")
    shown = template_for(ASK, model(), given)  # type: ignore[arg-type]
    assert shown.exemplars == default_template(model(), ASK).exemplars  # type: ignore[arg-type]
    assert shown.answer_rule == "iirc"

    def notes(method: Method, prompt: PromptTemplate | None) -> list[str]:
        lm = ScriptedModel([Say(" So the answer is Bo. So the final answer is: Bo.\nHe")])
        return dl.Lab(lm, retriever=ScriptedRetriever(), exemplars=prompt).ask("Who?", method).notes  # type: ignore[arg-type]

    note = "the exemplars do not show what self-ask writes, so its own stand in their place"
    assert notes(ASK, given) == [note]
    assert notes(ASK, PromptTemplate()) == notes(ASK, None) == notes(INSTRUCT, given) == []


GOOD = "- question: Is ice cold?\n  rationale: Ice is frozen.\n  answer: 'yes'\n"


# -- the package's own sets ------------------------------------------------------------------------


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
    more = (
        '[{"question": "Is ice cold?", "rationale": "Ice is frozen.", "answer": "yes", "more": 1}]'
    )
    for text in (GOOD, more):
        Path("iirc").write_text(text, encoding="utf-8")
        assert load_exemplars("iirc") == (Exemplar("Is ice cold?", "Ice is frozen.", "yes"),)
    for missing in ("no.yaml", tmp_path):
        with pytest.raises(SettingError, match=r"No such file|Is a directory"):
            load_exemplars(missing)


def test_a_question_among_the_worked_examples_is_found_however_it_is_spelt() -> None:
    asked = [
        ("1", "Who made Kor?"),
        ("2", "who made  KOR"),
        ("3", "“Who made Ko\u00adr?”"),
        ("4", "Who?"),
        ("5", "?"),
    ]
    assert among_exemplars(asked, ["Who made Kor?", "…"]) == ["1", "2", "3"]
