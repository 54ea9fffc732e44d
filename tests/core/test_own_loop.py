"""A loop of one's own, as docs/extending.md has it, works with all that takes a trace; the
answer knows its authors.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from answering import embedded
from scripted import Say, ScriptedModel, ScriptedRetriever, drive

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.core.answers import FORMS, open_thought, opened_thought, thoughts
from dragin_lab.core.episode import NextExample, Write, find_answer_end
from dragin_lab.core.loop import AnswerText
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Prompt

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"
QUESTION = "In which town was the director of The Ashen Rooftop born?"


def own_loop(name: str = "WorstSentence") -> str:
    """The page's block of that class, which enters its trigger; what the block asks is left
    out.
    """
    (block,) = re.findall(
        rf"```python\n(class {name}\(dl\.Loop\):.*?)(?:\n\ntrace = .*?)?```",
        DOCS.read_text("utf-8"),
        re.DOTALL,
    )
    exec(compile(block, str(DOCS), "exec"), {"dl": dl})
    return str(block)


def test_a_loop_of_ones_own_is_short_and_does_all_that_others_do(tmp_path: Path) -> None:
    block = own_loop()
    assert len([line for line in block.splitlines() if line.strip()]) <= 20
    lab = embedded()
    trace = lab.ask(QUESTION, when="worst-sentence", what="current", threshold=0.5)
    first, second = trace.steps[:2]
    worst = first.words.sentence[first.words.score.argmax()]
    start, stop = dl.method().pipeline.spans(first.draft.text)[worst]
    assert trace.queries == [first.draft.text[start:stop].strip()]
    assert second.prompt.part("passages")
    assert first.kept.strip() == first.draft.text[:start].strip()
    loaded = dl.Trace.load(trace.save(tmp_path / "a.trace"))
    replay = dl.Replay(loaded)
    assert [replay.at(threshold=theta).retrievals for theta in (0.5, 99.0)] == [1, 0]
    assert lab.branch(trace, step=1, query=trace.queries[0]).text == trace.text
    assert lab.branch(trace, step=1, retrieve=False).retrievals_count == 0
    questions = [dl.Question("1", QUESTION, ("Silvermouth",))]
    swept = lab.sweep(
        questions, when="worst-sentence", what="current", threshold=[0.5, 99.0], progress=False
    )
    assert swept.table["retrievals"].tolist() == [1.0, 0.0]
    assert dl.tune([trace]) is not None


def test_a_loop_by_word_resumes_at_the_word_and_stops_searching() -> None:
    own_loop("AtMostOnce")
    trace = embedded().ask(QUESTION, when="at-most-once", what="current", threshold=0.05)
    first, second = trace.steps[:2]
    assert first.kept == first.draft.text[: first.decision.cut] != first.draft.text
    assert second.prompt.text.endswith(first.kept.rstrip())
    assert second.prompt.part("passages")
    assert trace.retrievals_count == 1
    plain = dl.when("at-every-word", threshold=0.05)(lambda draft: draft.entropy)
    without = embedded().ask(QUESTION, when=plain, what="current")
    assert without.retrievals_count > 1  # so it is the loop that ends it


def test_a_loop_by_sentence_writes_and_keeps_one_sentence_at_a_time() -> None:
    own_loop("SentenceAgain")
    trace = embedded().ask(QUESTION, when="sentence-again", what="current", threshold=0.05)
    pipeline = dl.method().pipeline
    written = [step for step in trace.steps if step.kept.strip()]
    assert len(written) > 1
    for step in written:
        assert len(pipeline.spans(step.kept)) == 1
        assert step.kept.strip() == pipeline.split(step.texts[-1][1].text)[0]
    searched = trace.steps[0]
    assert searched.decision.retrieve
    assert searched.query.text == pipeline.split(searched.draft.text)[0]
    assert searched.continuation is not None
    assert searched.discarded == searched.draft.text


def test_what_is_no_loop_is_refused_by_name() -> None:
    part = dl.when("loopless", threshold=1.0, loop="worst")(lambda draft: draft.entropy)
    with pytest.raises(
        SettingError, match="loop='worst' of when='loopless' is no loop; give a subclass"
    ):
        dl.method(when=part)


# -- who wrote what --------------------------------------------------------------------------------


def test_what_a_passage_says_is_no_answer_and_stays_whole() -> None:
    asks, page = "<search> who </search>", "The quiz says <answer>Cy</answer> and Question: why."
    found = drive(
        method("search-r1", top_k=1),
        Say(asks),
        Say("<answer> Li </answer>"),
        passages=[page],
        golds=("Li",),
    )
    assert (found.trace.answer, found.trace.ended) == ("Li", "answered")
    assert page in found.trace.text


@pytest.mark.parametrize(
    "mark", ["<think>", "[THINK]", "<seed:think>", "◁think▷", "<|channel|>analysis<|message|>"]
)
def test_a_thought_that_the_prompt_opens_is_one(mark: str) -> None:
    """Nothing in it ends the text, fires or is the answer."""
    closing = {"[THINK]": "[/THINK]", "◁think▷": "◁/think▷"}.get(mark, mark.replace("<", "</"))
    closing = "<|channel|>final<|message|>" if "channel" in mark else closing
    thought = f" The answer is Cy.\n\nQuestion: Who? Bo {closing}"
    template = PromptTemplate(layout=lambda question, passages, tail: f"{question} {mark}\n{tail}")
    said = Say(
        f"{thought} It is Li. So the answer is Li.", entropy={"Bo": 9.0}, received={"Bo": 1.0}
    )
    trace = drive(method("dragin"), said, template=template, golds=("Li",)).trace
    assert (trace.answer, trace.queries, trace.ended) == ("Li", [], "answered")
    assert opened_thought(f"Who? {mark}\n") == mark
    assert open_thought(f"{mark} It") == mark
    assert open_thought(f"{mark} It {closing}") == ""
    assert thoughts("It.", mark) == [(0, 3)]


def test_a_line_that_the_template_writes_begins_another_example() -> None:
    template = dl.benchmark("almanac/hotpotqa", limit=1).template
    line = template.instruction.splitlines()[0]
    for mark in (
        line,
        "Question: Who?",
        "Context:\n[1] A film.",
        "Answer in the same format as before.",
    ):
        text = f" It is Bo.\n{mark}"
        assert text[: NextExample(template.example_marks).find_end(text)] == " It is Bo.", mark


def test_an_answer_that_is_never_closed_ends_with_its_line() -> None:
    form, text = FORMS["search-r1"], "<answer> Li\n"
    assert find_answer_end(text, form, ended=False) is None  # the mark may follow
    assert find_answer_end(f"{text}</ans", form, ended=False) is None
    assert (
        find_answer_end(f"{text}He is", form, ended=False)
        == find_answer_end(text, form, ended=True)
        == 11
    )


def test_a_text_cut_at_its_length_is_asked_in_a_new_line() -> None:
    found = drive(method("wo-rag", max_new_tokens=3), Say(" It is by Bo Ek."), Say(" Li."))
    assert found.lm.prompts[-1].endswith("Answer: It is by\nSo the answer is")
    assert found.trace.notes == [
        "the text was cut at its length; the answer was asked for in a new line"
    ]


# -- by their ids ----------------------------------------------------------------------------------


def test_the_answer_so_far_is_never_encoded_again() -> None:
    """Every prompt goes on with the very ids that were written, whatever a cut ran through."""
    lab = embedded().replace(exemplars=())
    for name in ("dragin", "fl-rag", "fs-rag", "flare"):
        trace = lab.ask(QUESTION, name, max_new_tokens=48)
        kept: list[int] = []
        for step in trace.steps:
            for _, draft, end in step.texts:
                ids = draft.prompt_ids.tolist()
                assert ids[len(ids) - len(kept) :] == kept, (name, step)
                assert end is not None
            if not step.texts:  # FLARE searches before anything is written
                continue
            _, draft, end = step.texts[-1]
            whole = int((draft.offsets[:, 1] <= end).cumprod().sum()) if end else 0
            new = [i for i in draft.ids[:whole].tolist() if i not in lab.model.tokenizer.ends]
            cut = whole < len(draft) and draft.offsets[whole, 0] < end
            kept = [] if cut else kept + new


def test_half_a_character_waits_for_its_rest() -> None:
    lab = embedded()
    lm = lab.model
    halves = lm.tokenizer.hf.convert_tokens_to_ids(["<0xE6>", "<0x9D>", "<0xB1>"])
    prefix = halves * 4
    answer = AnswerText(lm.tokenizer)
    for place in range(0, 12, 4):
        draft = lm.write(
            Write(Prompt("Question: Who?\nAnswer:"), 4, prefix=tuple(prefix[place : place + 4]))
        )
        answer.add(draft, len(draft.text))
    assert answer.text == "東東東東"
    assert answer.list_model_parts(99) == [(0, 4, tuple(prefix))]
    assert answer.list_model_parts(1) == [(0, 1, tuple(prefix[:3]))]  # no half of the second


def test_pieces_are_there_while_the_model_writes() -> None:
    seen: list[bool] = []

    @dl.when("pieces", threshold=99.0)
    def pieces(draft: dl.Draft) -> np.ndarray:
        seen.append(len(draft.pieces) == len(draft))
        return draft.entropy

    embedded().ask(QUESTION, when=pieces, max_new_tokens=6)
    assert len(seen) > 3
    assert all(seen)


def test_a_line_break_is_no_part_of_the_word_after_it() -> None:
    looks = {"Ek>\n": 900.0, "Ek>far": 50.0}
    said = Say(" It was far.\nBo Ek was Li.", entropy={"Ek": 9.0}, received={"Ek": 1.0})
    found = drive(
        method("dragin", top_n=1),
        said,
        Say(" So the answer is Li."),
        looks=looks,
        passages=["One."],
    )
    assert found.queries == ["far."]


def test_a_chat_is_asked_in_its_own_words() -> None:
    model = ScriptedModel([Say(" So the answer is Li.")])
    lab = dl.Lab(model, retriever=ScriptedRetriever(), layout="chat")
    lab.replace(exemplars=dl.benchmark("almanac/hotpotqa", limit=1).template).ask("Who?", "wo-rag")
    assert "example above" not in model.prompts[0]
