"""Episodes of the paper variant on scripted answers, to the character."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scripted import QUESTION, Driven, Say, ScriptedRetriever, drive

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.catalog.exchanged import exchange_settings, restore_method
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate

CASE = f"Question: {QUESTION}\nAnswer:"
FOUND = (
    "Context:\n[1] First passage.\n[2] Second passage.\n[3] Third passage.\nAnswer in the same"
    " format as before.\n"
)
FOUND_2 = (
    "Context:\n[1] First passage.\n[2] Second passage.\nAnswer in the same format as before.\n"
)
LOUD = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}}
ANSWERED = Say(" Li. So the answer is Li.\nThen he went")
MARKERS = pytest.mark.parametrize("marker", ["▁", "Ġ"])


def paper(name: str = "dragin", **settings: Any) -> Method:
    return method(name, variant="paper", **settings)


# -- DRAGIN ----------------------------------------------------------------------------------------


@MARKERS
def test_dragin_cuts_before_the_word_searches_and_resumes(marker: str) -> None:
    looks = {"film": 5.0, "made": 4.0}
    driven = drive(
        paper(top_n=2),
        Say(" The film is by Bo Ek, a man", **LOUD),
        ANSWERED,
        looks=looks,
        marker=marker,
    )
    assert driven.lm.prompts == [CASE, FOUND + CASE + " The film is by"]
    first, second = driven.trace.steps
    # its row over "Bo" is known when the comma is made
    assert first.draft.text.strip() == "The film is by Bo Ek,"
    assert first.decision.cut == first.draft.text.index(" Bo")
    assert (first.decision.retrieve, first.decision.sentence) == (True, 0)
    assert first.decision.reason == "'Bo' scores 4.5, above θ 0.25"
    assert first.draft.pieces[first.decision.token or 0].strip(marker) == "Bo"
    assert (first.query.text, first.query.sent) == ("made film", "made film")
    assert first.query.words == ("Who", "made", "it?", "The", "film", "is", "by")
    assert first.query.weights[[1, 4]] / first.query.weights[0] == pytest.approx([4, 5], rel=1e-2)
    assert [p.id for p in first.passages] == ["0", "1", "2"]
    assert (first.kept, first.discarded, first.answer) == (
        " The film is by",
        " Bo Ek,",
        " The film is by",
    )
    assert second.kept == " Li. So the answer is Li."
    assert second.discarded == "\n"
    assert driven.trace.text == " The film is by Li. So the answer is Li."
    assert (driven.trace.answer, driven.trace.ended) == ("Li", "answered")
    assert driven.trace.counters["retrievals"] == 1
    assert driven.trace.counters["drafts"] == 2
    assert first.prompt is not None
    assert second.prompt.part("answer") == " The film is by"


def test_the_sentence_being_resumed_is_finished_first_and_passages_stay_until_the_next() -> None:
    driven = drive(
        paper(what="question"),
        Say(" It is Bo Ek, a man", **LOUD),
        Say(" Bo Ek. He met Bo Ek, a man", **LOUD),
        Say(" Li. He was Li. He went"),
        Say("Li."),
        passages=["New."],
    )
    context = "Context:\n[1] New.\nAnswer in the same format as before.\n"
    assert driven.lm.prompts[:3] == [
        CASE,
        context + CASE + " It is",
        context + CASE + " It is Bo Ek. He met",
    ]
    assert driven.trace.text == " It is Bo Ek. He met Li. He was Li. He went"
    assert driven.queries == [QUESTION, QUESTION]
    assert driven.trace.steps[1].decision.sentence == 1
    assert driven.trace.steps[2].decision.certain  # an end of its own, not the limit


@MARKERS
def test_a_cut_at_the_start_keeps_nothing_not_even_a_space(marker: str) -> None:
    driven = drive(paper(what="current"), Say(" Bo Ek, a man", **LOUD), ANSWERED, marker=marker)  # type: ignore[arg-type]
    assert driven.lm.prompts == [CASE, FOUND + CASE]
    assert driven.trace.steps[0].kept == ""


def test_what_is_said_after_the_answer_calls_for_nothing() -> None:
    """The word after the answer's sentence is loud before the draft can be stopped."""
    say = Say(" So the answer is Li.\nBo's a man", **LOUD)
    driven = drive(paper(), say)
    assert driven.queries == []
    assert (driven.trace.text, driven.trace.ended) == (" So the answer is Li.", "answered")
    (step,) = driven.trace.steps
    assert not step.words.hit.any()
    silent = "no word scores above θ 0.25 (the highest: 0.02)"
    assert step.decision.reason == silent
    assert not step.words.unjudged[:5].any()


def test_a_sentence_that_is_resumed_is_not_judged_and_the_reason_says_its_highest_score() -> None:
    driven = drive(
        paper(what="question"),
        Say(" It is Bo Ek, a man", **LOUD),
        Say(" Bo Ek. He is Li.", **LOUD),
        Say("Li"),
    )
    step = driven.trace.steps[1]
    silent = "no word scores above θ 0.25 (the highest: 0.02)"
    assert (
        step.decision.reason
        == f"{silent}; the sentence being resumed is not judged (the highest: 4.5, 'Bo')"
    )
    assert [
        text for text, bare in zip(step.words.text, step.words.unjudged, strict=True) if bare
    ] == ["Bo", "Ek."]
    assert step.words.score[0] > 0.25
    assert not step.words.hit.any()


def test_scaled_scores_fire_at_the_end_of_the_sentence() -> None:
    loud = {"entropy": {"Bo": 2.0}, "received": {"Bo": 0.05, ".": 0.01}}
    say = Say(" It is Bo Ek. He was far", **loud)  # type: ignore[arg-type]
    driven = drive(paper(scale="sentence", threshold=0.5, what="current"), say, ANSWERED)
    first = driven.trace.steps[0]
    assert first.draft.text == "It is Bo Ek. He was"  # settled when "He " is whole
    assert first.kept == " It is"
    assert driven.queries == ["It is Bo Ek."]


# -- the others ------------------------------------------------------------------------------------


def test_wo_rag_and_sr_rag() -> None:
    say = Say(" It is Li. So the answer is Li.\nThen he")
    without = drive(paper("wo-rag"), say)
    assert without.lm.prompts == [CASE]
    assert without.queries == []
    once = drive(paper("sr-rag"), say)
    assert once.lm.prompts == [FOUND + CASE]
    assert once.queries == [QUESTION]
    for driven in (without, once):
        assert driven.trace.text == " It is Li. So the answer is Li."
        assert (driven.trace.answer, driven.trace.ended, len(driven.trace.steps)) == (
            "Li",
            "answered",
            1,
        )


@MARKERS
def test_fl_rag_searches_every_n_tokens_and_joins_inside_words(marker: str) -> None:
    script = [Say(" It is Wro"), Say("cław. So"), Say(" the answer is"), Say(" Li.\nThen he")]
    driven = drive(paper("fl-rag", n=3, max_new_tokens=12), *script, marker=marker)
    assert driven.trace.text == " It is Wrocław. So the answer is Li."
    assert driven.lm.prompts[:4] == [
        FOUND + CASE,
        FOUND + CASE + " It is Wro",
        FOUND + CASE + " It is Wrocław. So",
        FOUND + CASE + " It is Wrocław. So the answer is",
    ]
    assert driven.queries == [QUESTION, "It is Wro", "Wrocław. So", "the answer is"]


def test_fs_rag_searches_every_sentence() -> None:
    script = [
        Say(" It is Bo. He went far"),
        Say(" He went. So the way"),
        Say(" So the answer is Li.\n"),
    ]
    driven = drive(paper("fs-rag"), *script)
    assert driven.trace.text == " It is Bo. He went. So the answer is Li."
    assert driven.queries == [QUESTION, "It is Bo.", "He went."]
    assert [step.kept for step in driven.trace.steps] == [
        " It is Bo.",
        " He went.",
        " So the answer is Li.",
    ]
    assert driven.trace.steps[0].continuation_kept == len("It is Bo.")
    ends = [step.continuation.stopped for step in driven.trace.steps]
    assert ends == ["sentence", "sentence", "answer"]
    assert driven.trace.ended == "answered"


def test_white_space_before_the_end_is_no_reason_to_go_on() -> None:
    driven = drive(paper("fs-rag"), Say(" It is Bo.\n"), Say("Bo."))
    assert (driven.trace.text, driven.trace.ended, len(driven.trace.steps)) == (
        " It is Bo.",
        "answered",
        1,
    )


@MARKERS
def test_flare_looks_a_sentence_ahead(marker: str) -> None:
    doubtful = Say(" He met Bo Ek there. Then he", doubt={"He": 0.7, "met": 0.5, "Bo": 0.9})
    script = [
        Say(" It is far. Then he"),
        doubtful,
        Say(" He met Li. Then he"),
        Say(" So the answer is Li.\nThen he"),
    ]
    driven = drive(paper("flare"), *script, marker=marker)
    assert driven.queries == [QUESTION, "met Ek there."]  # β: tokens of p below 0.4 are left out
    assert driven.trace.text == " It is far. He met Li. So the answer is Li."
    start, accepted, again, last = driven.trace.steps
    assert (start.draft, start.continuation, start.kept) == (None, None, "")
    assert (accepted.kept, accepted.decision.retrieve) == (" It is far.", False)
    assert again.decision.reason == "'He' has 1 - p = 0.7, above θ 0.2"
    assert again.words.text[: len(again.words.hit)] == ("He", "met", "Bo", "Ek", "there.")
    assert again.words.hit.tolist() == [True, True, True, False, False]
    assert (again.discarded, again.kept) == (again.draft.text, " He met Li.")
    assert again.continuation.text[: again.continuation_kept].strip() == "He met Li."
    assert last.kept == " So the answer is Li."
    written = [accepted.draft, again.draft, again.continuation, last.draft]
    assert [text.stopped for text in written] == ["sentence", "sentence", "sentence", "answer"]
    assert driven.lm.prompts == [
        FOUND_2 + CASE,
        FOUND_2 + CASE + " It is far.",
        FOUND_2 + CASE + " It is far.",
        FOUND_2 + CASE + " It is far. He met Li.",
    ]


# -- endings ---------------------------------------------------------------------------------------


def test_tokens_without_text_stall() -> None:
    driven = drive(paper("fl-rag", n=2), Say("<unk><unk>"), Say("Li"))
    assert (driven.trace.ended, driven.trace.text) == ("stalled", "")


@pytest.mark.parametrize("name", PAPERS)
def test_a_model_that_says_nothing(name: str) -> None:
    driven = drive(paper(name), Say(""), Say(" Li"))
    assert (driven.trace.text, driven.trace.ended, driven.trace.answer) == ("", "stalled", "Li")
    assert (
        driven.trace.notes[0]
        == "the model ended before it wrote anything; the answer was asked for"
    )
    assert "Answer: So the answer is" in driven.lm.prompts[-1] or name in (
        "flare-instruct",
        "self-ask",
    )
    if name in ("dragin", "flare"):
        assert driven.trace.steps[-1].decision.reason == "the model ended before it wrote anything"


def test_rind_ends_at_the_length_limit_and_says_it_may_be_wrong() -> None:
    driven = drive(paper(max_new_tokens=4), Say(" It is Li Ek"), Say("Li."))
    (step,) = driven.trace.steps
    assert (driven.trace.ended, driven.trace.text) == ("length", " It is Li Ek")
    assert not step.decision.certain
    assert step.decision.reason.startswith("no word scores above θ 0.25 (the highest: 0.02)")


def test_the_limit_bounds_the_answer_over_all_drafts() -> None:
    driven = drive(
        paper(max_new_tokens=8, what="question"),
        Say(" It is Bo Ek, a", **LOUD),
        Say(" a b c d e f"),
        Say("Li"),
    )
    assert [d.max_new_tokens for d in driven.lm.drafts] == [8, 6, 20]
    assert driven.trace.text == " It is a b c d e f"
    assert driven.trace.ended == "length"


def test_the_answer_is_asked_for_with_the_passages_in_force() -> None:
    for name in ("sr-rag", "fl-rag", "fs-rag", "flare", "dragin", "targ"):
        settings = {"threshold": 0.0} if name in ("dragin", "targ") else {}
        said = [Say(" It is Bo.", **LOUD), Say(" Li.")] if settings else [Say(" It is Bo.")]
        driven = drive(paper(name, top_k=3, max_new_tokens=12, **settings), *said, Say(" Li Ek"))
        assert driven.lm.prompts[-1].startswith(FOUND + CASE), name
        assert driven.lm.prompts[-1].endswith(" So the answer is")


def test_a_search_without_a_hit_keeps_the_passages() -> None:
    class Once(ScriptedRetriever):
        def search(self, query: str, k: int) -> list[Any]:
            return super().search(query, k) if not self.queries else []

    said = [Say(" It is far. Then he"), Say(" It is Bo. So the"), Say(" So the answer is Li.")]
    driven = drive(paper("fs-rag"), *said, retriever=Once())
    assert [FOUND in prompt for prompt in driven.lm.prompts] == [True, True, True]
    assert driven.trace.steps[1].notes[-1] == "nothing was found, so the passages stay"


@MARKERS
def test_a_query_without_a_word_is_not_sent_and_the_passages_stay(marker: str) -> None:
    script = [
        Say(" Bo Ek. So it", doubt={"Bo": 0.9, "Ek": 0.9}),
        Say(" Bo Ek. So it"),
        Say(" So the answer is Bo."),
    ]
    driven = drive(paper("flare"), *script, marker=marker)
    assert driven.queries == driven.retriever.queries == [QUESTION]
    assert driven.trace.counters["retrievals"] == 1
    assert [prompt.startswith(FOUND_2) for prompt in driven.lm.prompts] == [True, True, True]


@MARKERS
def test_flare_leaves_out_whole_words_and_marks_by_themselves(marker: str) -> None:
    tokens = {"y": 0.9, "-": 0.9, ",": 0.9}
    script = [
        Say(" It is by Bo-Ek, El and X_y. Then", doubt=tokens),
        Say(" It is. He"),
        Say(" So the answer is Bo."),
    ]
    driven = drive(paper("flare"), *script, marker=marker)
    assert driven.queries[1] == "It is by Bo Ek El and"


@pytest.mark.parametrize("name", ["wo-rag", "fs-rag", "flare", "fl-rag"])
def test_an_answer_of_several_sentences_is_read_to_the_end_of_its_line(name: str) -> None:
    gold = "Mamma Mia! Here We Go Again. No. 2"
    driven = drive(
        paper(name, **{"n": 30} if name == "fl-rag" else {}), Say(f" So the answer is {gold}.\nHe")
    )
    assert (driven.trace.answer, driven.trace.ended, len(driven.lm.drafts)) == (gold, "answered", 1)


def test_a_stated_answer_counts_in_any_capitals() -> None:
    driven = drive(paper("wo-rag"), Say(" It is. The Answer is Bo Ek."), golds=("Bo Ek",))
    assert (driven.trace.answer, driven.trace.scores["em"]) == ("Bo Ek", 1)
    strict = drive(
        method("wo-rag", variant="reference"), Say(" It is. The Answer is Bo Ek."), Say(" Li.")
    )
    assert strict.trace.answer == "Li"


def test_extraction_asks_after_the_answer() -> None:
    driven = drive(paper("wo-rag"), Say(" It is Li."), Say(" Li Ek."), golds=("Li",))
    assert driven.trace.ended == "answered"
    assert driven.lm.prompts[1] == CASE + " It is Li. So the answer is"
    assert driven.lm.drafts[1].max_new_tokens == 20
    assert driven.trace.extraction is not None
    assert driven.trace.answer == "Li Ek"
    assert driven.trace.scores == pytest.approx(
        {"em": 0, "f1": 2 / 3, "precision": 1 / 2, "recall": 1}
    )
    assert driven.trace.text == " It is Li."


def test_a_step_of_a_chain_of_thought_is_a_line_and_is_judged_as_a_whole() -> None:
    @dl.when("doubtful-step", threshold=1.0, unit="step", pool="sum")
    def doubtful(draft: dl.Draft) -> np.ndarray:
        return draft.entropy

    asked = method("dragin", when="doubtful-step", what="current")
    first = Say(" It was far. It is by Bo.\n He left", entropy={"far": 0.6, "Bo": 0.6})
    script = (first, Say(" It was far. It is by Li.\n So"), Say("\n So the answer is Li.\nThen he"))
    trace = drive(asked, *script, question="Who directed Ma?").trace
    assert trace.queries == ["It was far. It is by Bo."]  # both sentences of the line
    assert "the step scores" in trace.steps[0].decision.reason
    assert (trace.text, trace.answer) == (" It was far. It is by Li.\n So the answer is Li.", "Li")
    assert restore_method(trace.method) == asked
    assert not exchange_settings(asked, when="rind").pipeline.lines


# -- queries ---------------------------------------------------------------------------------------

DRAFT = Say(
    " It was far. It is by Bo Ek, a man. Then he",
    entropy={"Bo": 9.0},
    received={"Bo": 0.5},
    doubt={"Bo": 0.9},
)


@MARKERS
def test_qfs_asks_what_the_word_itself_looks_at(marker: str) -> None:
    """Not what the position looked at that predicted it, as the released code has it."""
    looks = {"Bo>far": 9.0, "by>made": 9.0}
    driven = drive(paper(top_n=1), DRAFT, ANSWERED, marker=marker, looks=looks)
    assert driven.queries == ["far."]


@MARKERS
@pytest.mark.parametrize("what", ["current-without-hits", "confident-sentence"])
def test_a_hit_at_the_start_of_a_later_sentence_is_taken_out(what: str, marker: str) -> None:
    """Its first token brings the space before the sentence."""
    say = dataclasses.replace(DRAFT, text=" It was far. Bo Ek made it, then he")
    driven = drive(paper(what=what), say, ANSWERED, marker=marker)
    assert driven.queries == ["Ek made"]


# -- the window ------------------------------------------------------------------------------------

TEMPLATE = PromptTemplate(
    (Exemplar("Is the sky blue?", "It is.", "yes"), Exemplar("Is it?", "It is.", "no"))
)


def size(driven: Driven, text: str) -> int:
    return len(driven.lm.tokenizer.encode(text, special=True))


def test_a_long_prompt_drops_exemplars_then_passages_and_says_so() -> None:
    say = [Say(" It is Bo. Then he"), Say(" So the answer is Li.\nThen he")]
    free = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE)
    need = size(free, free.lm.prompts[0]) + 20
    tight = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE, window=need - 1)
    assert tight.trace.steps[0].notes == [
        "continuation: dropped 1 of 2 exemplars to fit the window"
    ]
    assert "[3]" in tight.lm.prompts[0]
    exact = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE, window=need)
    assert exact.trace.steps[0].notes == []
    # The room for what is still to be written shrinks as it is written.
    assert size(exact, exact.lm.prompts[1]) + exact.lm.drafts[1].max_new_tokens <= need
    small = size(free, CASE) + 21
    bare = drive(paper("fs-rag", max_new_tokens=20), *say, template=TEMPLATE, window=small)
    assert bare.lm.prompts[0] == CASE
    assert bare.trace.steps[0].notes == [
        "continuation: dropped 3 of 3 passages to fit the window",
        "continuation: dropped 2 of 2 exemplars to fit the window",
    ]


def test_the_prompt_of_the_extraction_fits_the_window_too() -> None:
    say = [Say(" It is Bo"), Say(" Li")]
    window = 40
    driven = drive(paper("wo-rag", max_new_tokens=8), *say, template=TEMPLATE, window=window)
    for draft in driven.lm.drafts:
        assert size(driven, draft.prompt.text) + draft.max_new_tokens <= window
    assert driven.lm.prompts[1].endswith(CASE + " It is Bo So the answer is")
    assert any("dropped" in note for note in driven.trace.notes)


def test_fewer_passages_than_asked_are_noted() -> None:
    driven = drive(paper("sr-rag"), ANSWERED, passages=["Only."])
    assert driven.trace.steps[0].notes == ["asked for 3 passages, found 1"]
    assert driven.lm.prompts == [
        "Context:\n[1] Only.\nAnswer in the same format as before.\n" + CASE
    ]


def test_kept_characters_are_within_the_text() -> None:
    """The answer ends in the chunk before, which only the next chunk shows."""
    script = [Say(" So the answer is Li."), Say("\nThen he went far away.")]
    driven = drive(paper("fl-rag", n=6, max_new_tokens=30), *script)
    assert driven.trace.text == " So the answer is Li."
    assert driven.trace.steps[1].continuation_kept == 0
    assert driven.trace.steps[1].kept == ""
    assert driven.trace.ended == "answered"
    assert driven.trace.counters["discarded"] == 1


# -- what a step says of itself --------------------------------------------------------------------


def test_targ_says_where_its_decision_fell() -> None:
    said = Say(" It is by Bo Ek. So the answer is Bo.")
    driven = drive(paper("targ", threshold=1.0, first=3), said, said)
    first, *rest = [step.decision.reason for step in driven.trace.steps if step.decision]
    assert "no draft scores above" in first
    assert set(rest) == {"what was written here is not judged; the decision fell in step 1"}


def test_a_word_that_may_not_fire_has_a_reason() -> None:
    chosen = paper("etc")
    said = " <think> The film </think> It is Bo. So the answer is Bo."
    driven = drive(paper("wo-rag"), Say(said))
    seen = driven.trace.steps[0].draft.read_by(chosen.pipeline)
    until = seen.text.index("Bo")
    verdict = dataclasses.replace(chosen.trigger.judge(seen, until=until), until=until)
    why = {word: verdict.explain_spared(place) for place, word in enumerate(seen.words)}
    assert why["film"] == "it is part of a thought"
    assert why["Bo."] == "the answer stands before it"


def test_a_note_says_of_which_text_of_its_step_it_is() -> None:
    chosen = paper("flare", threshold=0.5, max_new_tokens=20)
    say = [Say(" It is Bo.", doubt={"Bo": 0.9}), Say(" So the answer is Bo.")]
    free = drive(chosen, *say, template=TEMPLATE)
    need = size(free, free.lm.prompts[0]) + 20
    tight = drive(chosen, *say, template=TEMPLATE, window=need - 1)
    notes = tight.trace.steps[-1].notes
    assert [note.partition(":")[0] for note in notes] == ["draft", "continuation"]


def test_stop_words_are_missing_where_the_released_code_did_not_look() -> None:
    looks = {"film": 5.0, "made": 4.0}
    said = Say(" The film is good. It was made.", entropy={"film": 9.0})
    reference = method("dragin", variant="reference", threshold=1.0)
    driven = drive(reference, said, Say(" So the answer is Bo."), looks=looks)
    step = next(step for step in driven.trace.steps if step.decision and step.decision.retrieve)
    tokens = driven.trace.tokens
    tokens = tokens[(tokens["step"] == step.index + 1) & (tokens["source"] == "draft")]
    looked = tokens["sentence"] == step.decision.sentence
    assert looked.any()
    assert not looked.all()
    assert tokens["stop"].notna().tolist() == looked.tolist()
