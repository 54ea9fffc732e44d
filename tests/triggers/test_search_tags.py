"""Search-R1: calls between tags, passages put in after them, the answer between tags; thinking
models' thoughts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scripted import QUESTION, Driven, Say, WordTokenizer, drive

from dragin_lab import views
from dragin_lab.catalog.by_name import method
from dragin_lab.core.answers import SEARCH_R1, thoughts, without_thoughts
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.errors import SettingError
from dragin_lab.triggers.call import Call

ASKS = "<think> I do not know. </think>\n<search> maker of Ma </search>"
ANSWERS = "<think> It is Bo or Li. </think>\n<answer> Li </answer>"
FOUND = "<information>Doc 1(Title: title) First.\nDoc 2(Title: title) Second.\n</information>\n\n"


def asked(*script: Say, **options: Any) -> Driven:
    return drive(
        method("search-r1", top_k=2, **options),
        *script,
        passages=("First.", "Second."),
        golds=("Li",),
    )


def test_calls_results_and_answer() -> None:
    found = asked(Say(f"{ASKS} more"), Say(f"{ANSWERS} more"))
    turn = WordTokenizer().chat([("user", SEARCH_R1.format(question=QUESTION))])
    assert found.lm.prompts == [turn, f"{turn}\n\n{ASKS}{FOUND}"]
    assert found.queries == ["maker of Ma"]
    assert found.trace.text == f"\n\n{ASKS}{FOUND}{ANSWERS}"
    assert (found.trace.answer, found.trace.ended, found.trace.scores["em"]) == (
        "Li",
        "answered",
        1.0,
    )
    page, text = found.trace._repr_html_(), views.trace(found.trace).text
    for shown in ("maker of Ma", "First.", "Thoughts", "It is Bo or Li.", "search-r1"):
        assert shown in page, shown
    assert "maker of Ma" in text


def test_a_model_that_never_answers_is_asked_to() -> None:
    found = asked(Say("<think> Hm. </think> I think"), Say(" Li </answer>"))
    assert found.lm.prompts[-1].endswith("I think\n<answer>")
    assert found.trace.answer == "Li"


def test_the_question_is_asked_as_one_and_plainly_without_a_chat_template() -> None:
    class Plain(WordTokenizer):
        def __init__(self) -> None:
            super().__init__()
            self.chats = False

    template = PromptTemplate(form="search-r1").bound(Plain())
    prompt = template.render(" Who made it ", "\n\nSo")
    assert prompt.text == SEARCH_R1.format(question="Who made it?") + "\n\nSo"
    assert (prompt.part("question"), prompt.part("answer"), prompt.special) == (
        "Who made it?",
        "\n\nSo",
        True,
    )
    with pytest.raises(SettingError, match="leaves out or repeats the question"):
        replace(template, chat=lambda turns: "hello").render("Who?")


def test_a_text_may_hold_several_thoughts_or_none() -> None:
    text = "<think>a</think>b<think>c</think>d"
    assert [text[a:b] for a, b in thoughts(text)] == ["<think>a</think>", "<think>c</think>"]
    assert (without_thoughts(text), without_thoughts("a")) == ("bd", "a")


@pytest.mark.parametrize("in_thoughts", [True, False])
def test_calls_in_thoughts_count_where_the_method_says_so(in_thoughts: bool) -> None:
    call = Call(opens="[Find(", closes=")]", in_thoughts=in_thoughts)
    script = [
        Say("<think> Hm [Find(a)] so </think> It is [Find(b)] Bo"),
        Say(" Li. So the answer is Li.\nHe"),
    ]
    script = (
        [Say("<think> Hm [Find(a)]"), Say(" so </think> It is [Find(b)]"), script[1]]
        if in_thoughts
        else script
    )
    found = drive(method(when=call, what="term"), *script)
    assert found.queries == (["a", "b"] if in_thoughts else ["b"])
    assert found.trace.answer == "Li"


def test_what_is_thought_is_not_the_answer() -> None:
    thought = "<think> Maybe the answer is Bo. Or not. </think>"
    found = drive(method("wo-rag"), Say(f"{thought} So the answer is Li.\nHe"))
    assert found.trace.answer == "Li"
    assert found.trace.text.endswith("So the answer is Li.")


def test_custom_layouts_answer_rules_and_metrics() -> None:
    def bare(question: str, passages: Any, answer: str) -> str:
        return f"Q {question} A{answer}"

    def last_word(text: str) -> str:
        return text.partition("is ")[2].partition(".")[0]

    def length(answer: str, golds: Any) -> float:
        return len(answer)

    template = PromptTemplate(layout=bare, answer_rule=last_word, metrics=(length,))
    found = drive(method("wo-rag"), Say(" So the answer is Li."), template=template, golds=("Bo",))
    assert found.lm.prompts == [f"Q {QUESTION} A"]
    assert found.trace.answer == "Li"
    assert (found.trace.scores["em"], found.trace.scores["length"]) == (0.0, 2.0)
    settings = template.settings
    assert (settings["layout"], settings["answer_rule"]) == ("bare", "last_word")
    assert settings["metrics"] == ["length"]
    assert list(settings["defined"]) == ["layout bare", "answer rule last_word", "metric length"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"layout": lambda question, passages, answer: 3}, "the layout <lambda> gave '3'"),
        ({"answer_rule": lambda text: None}, "the answer rule <lambda> gave None; give a text"),
        ({"metrics": (lambda answer, golds: "x",)}, "<lambda>='x' is not a number"),
        (
            {"metrics": (length, length)},
            "two scores are called 'length'; give the metric a function name",
        ),
        (
            {"layout": "page"},
            "layout 'page' does not exist; one of dragin, flare, chat, or a function",
        ),
    ]
    for options, says in wrong:
        with pytest.raises(SettingError, match=says):
            drive(
                method("wo-rag"),
                Say(" the answer is Li."),
                template=PromptTemplate(**options),
                golds=("Bo",),
            )


@pytest.mark.parametrize(
    "text",
    [
        "<think>It is Al.</think>Bo.",
        "<seed:think>It is Al.</seed:think>Bo.",
        "<thinking>It is Al.</thinking>Bo.",
        "[THINK]It is Al.[/THINK]Bo.",
        "It is Al.</think>Bo.",  # which the prompt opened
        "<|channel|>analysis<|message|>It is Al.<|start|>assistant<|channel|>final<|message|>Bo.",
        "Bo.<think>It is Al.",
    ],
)
def test_thoughts_in_any_marks_are_no_part_of_the_answer(text: str) -> None:
    assert without_thoughts(text) == "Bo."
