"""Episodes of the reference variant on scripted answers: the table of reference-behaviour §1,
spaces and all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spacy
from scripted import Driven, Say, drive
from spacy.language import Language
from spacy.tokens import Doc

from dragin_lab.catalog import by_name as catalog
from dragin_lab.catalog.by_name import method
from dragin_lab.core.episode import Episode
from dragin_lab.core.loop import BaseLoop
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.trace.trace import Decision, Query

QUESTION = "Who directed Ma?"
CASE = f"Question: {QUESTION}\nAnswer:"
LISTED = "Context:\n[1] First passage.\n[2] Second passage.\n[3] Third passage.\n"
FOUND = LISTED + "Answer in the same format as before.\n" + CASE
LOUD = {"Bo": 9.0}
DRAFT = Say(" It was far. It is by Bo Ek. He left", entropy=LOUD, doubt={"Bo": 0.9})
LAST = Say(" So the answer is Li. He")


def reference(name: str = "dragin", **settings: Any) -> Method:
    return method(name, variant="reference", **settings)


def run(chosen: Method, *script: Say, **options: Any) -> Driven:
    return drive(chosen, *script, question=QUESTION, **options)


def decision(driven: Driven, step: int = 0) -> Decision:
    return driven.trace.steps[step].decision  # type: ignore[return-value]


def query(driven: Driven, step: int = 0) -> Query:
    return driven.trace.steps[step].query  # type: ignore[return-value]


# -- single generations ----------------------------------------------------------------------------


def test_queries_are_cut_to_their_last_64_tokens_without_special_tokens() -> None:
    question = " ".join(f"w{chr(97 + i % 26)}" for i in range(70)) + " <s>"
    driven = drive(reference("sr-rag"), Say(" So the answer is Bo."), question=question)
    assert query(driven).text == question
    # the space before <s> is a token
    assert query(driven).sent == " ".join(question.split()[-63:-1]) + " "
    assert driven.retriever.queries == [query(driven).sent]


# -- searching first -------------------------------------------------------------------------------


def test_fs_rag_without_a_sentence_ends() -> None:
    driven = run(reference("fs-rag", max_new_tokens=2), Say("\n\n"), Say(" Bo"))
    assert (driven.trace.text, driven.trace.ended) == ("", "stalled")


def test_a_special_token_in_a_sentence_does_not_end_it_early() -> None:
    """The released code splits the text with special tokens, in which 'was.<unk>' ends no
    sentence.
    """
    script = [Say(" It was.<unk> far off. He left"), Say(" So the answer is Bo.")]
    driven = run(reference("fs-rag"), *script)
    assert driven.trace.steps[0].kept == "It was.<unk> far off."


@Language.component("splits_by_opening")
def splits_by_opening(doc: Doc) -> Doc:
    """As a statistical pipeline may: white space at the start of a text changes where its
    sentences end.
    """
    ends = {".", ","} if len(doc) and doc[0].is_space else {"."}
    for token in doc:
        token.is_sent_start = token.i > 0 and doc[token.i - 1].text in ends
    return doc


def test_dragin_splits_a_continuation_as_written_and_fs_rag_a_stripped_one() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("splits_by_opening")
    rewritten = Say("\n It is by Li, they say. So it")
    dragin = run(reference(nlp=nlp), DRAFT, rewritten, Say(" So the answer is Li."))
    assert dragin.trace.steps[0].kept == "It was far. It is by Li,"
    fs_rag = run(reference("fs-rag", nlp=nlp), rewritten, Say(" So the answer is Li."))
    assert fs_rag.trace.steps[0].kept == "It is by Li, they say."


# -- looking ahead: DRAGIN -------------------------------------------------------------------------


def test_dragin_writes_looks_back_searches_and_writes_one_sentence_again() -> None:
    script = [DRAFT, Say(" It is by Li. So it"), Say(" So the answer is Li.")]
    driven = run(reference(top_n=2), *script, looks={"directed": 5.0, "far": 4.0, "Ek": 100.0})
    assert driven.lm.prompts == [CASE, FOUND + " It was far.", CASE + " It was far. It is by Li."]
    first, second = driven.trace.steps
    assert decision(driven).sentence == 1
    assert decision(driven).retrieve
    assert decision(driven).cut == first.draft.text.index("It is by Bo")
    assert first.words.text == (
        "It",
        "was",
        "far.",
        "It",
        "is",
        "by",
        "Bo",
        "Ek.",
        "He",
        "left</s>",
    )
    assert first.words.sentence.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert np.flatnonzero(first.words.hit).tolist() == [6]
    # Attended: the generated ids alone; then question, text and kept with every separator, and the
    # sentence's words.
    assert driven.lm.attended[:2] == [
        "It was far. It is by Bo Ek. He left</s>",
        f"<s> {QUESTION}  It was far. It is by Bo Ek.",
    ]
    assert query(driven).text == "directed far."
    assert (query(driven).words, query(driven).note) == (("directed", "Ma?", "far.", "Ek."), "")
    assert first.kept == "It was far. It is by Li."
    assert first.discarded == "It is by Bo Ek. He left"
    assert first.continuation.text == "It is by Li. So it"
    assert first.continuation_kept == len("It is by Li.")
    assert not decision(driven, 1).retrieve
    assert decision(driven, 1).reason.startswith("no sentence scores above θ 1.2 (the highest: ")
    assert second.kept == "So the answer is Li.</s>"
    assert driven.trace.text == "It was far. It is by Li. So the answer is Li.</s>"
    assert (driven.trace.answer, driven.trace.ended) == ("Li", "answered")
    assert driven.trace.counters["retrievals"] == 1
    assert driven.trace.counters["drafts"] == 3


def test_content_words_are_looked_at_after_the_decision() -> None:
    say = Say(" It was far. Then he left it.", entropy={"Then": 9.0})
    driven = run(reference(top_n=2, max_new_tokens=9), say, Say(" So the answer is Li. He"))
    assert decision(driven).retrieve
    assert decision(driven).reason.startswith("'Then' in sentence 2 scores ")
    assert decision(driven).reason.endswith(
        "the released code fires on it but does not count it as a hit"
    )
    assert not driven.trace.steps[0].words.hit.any()
    # no weights are left, so text order ranks the words
    assert query(driven).text == "directed Ma?"
    assert query(driven).note == "no flagged word is left, so text order ranks the words"
    assert np.isnan(query(driven).weights).all()
    kept = run(reference(top_n=2, check_content_words=False), say, Say(" So the answer is Li. He"))
    assert kept.trace.steps[0].words.hit.tolist() == [
        word == "Then" for word in kept.trace.steps[0].words.text
    ]
    assert query(kept).note == ""
    assert decision(kept).reason.endswith("above θ 1.2")


# -- looking ahead: FLARE --------------------------------------------------------------------------


def test_no_loop_can_forget_to_read_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(BaseLoop):
        def run(self) -> Episode[None]:
            step = self.new_step()
            step.prompt = self.template.render(self.question)
            step.draft = yield from self.write_after(step.prompt, 16, step.notes, source="draft")
            self.trace.text = step.draft.text

    monkeypatch.setattr(catalog, "find_loop", lambda method: Forgetful)
    driven = drive(reference("wo-rag"), Say(" So the answer is Li."), question="Who is it?")
    assert driven.trace.answer == "Li"
    assert driven.trace.ended == "stalled"
    assert driven.trace.notes == ["Forgetful did not say how the episode ended"]


# -- what a query is made of, a window overrun, how episodes end -----------------------------------


def test_a_context_of_no_more_than_n_tokens_is_the_query_itself() -> None:
    driven = drive(reference("dragin", what="last-n", top_n=50), DRAFT, LAST, question=QUESTION)
    assert driven.queries == [f"{QUESTION} It was far."]


def test_nothing_is_dropped_for_the_window_and_the_overrun_is_noted() -> None:
    template = PromptTemplate((Exemplar("Is the sky blue?", "It is.", "yes"),))
    driven = drive(
        reference("sr-rag"), Say(" It is Bo."), Say(" Bo."), template=template, window=30
    )
    (step,) = driven.trace.steps
    assert "[3] Third passage." in driven.lm.prompts[0]
    assert "sky" in driven.lm.prompts[0]
    assert len(step.notes) == 1
    assert step.notes[0].endswith("more than the model's window of 30")
    assert len(driven.trace.notes) == 1  # of the prompt that asks for the answer
    longest = max(len(draft.prompt_ids) + len(draft) for draft in driven.trace.continuations)
    for window, overruns in ((longest - 1, 1), (longest, 0)):
        driven = drive(
            reference("sr-rag"), Say(" It is Bo."), Say(" Bo."), template=template, window=window
        )
        (step,) = driven.trace.steps
        notes = [*step.notes, *driven.trace.notes]
        assert len(notes) == overruns
        assert all(f"prompt and text have {longest} tokens" in note for note in notes)


@pytest.mark.parametrize("name", REFERENCE_METHODS)
def test_a_model_that_says_nothing(name: str) -> None:
    driven = drive(reference(name, max_new_tokens=2), Say(""), Say(" Li"))
    looping = name not in ("wo-rag", "sr-rag")
    # With the space that joins it and the BOS, a text of one closing token is longer than the
    # limit.
    assert driven.trace.text == (" </s>" if looping else "</s>")
    assert driven.trace.ended == ("length" if looping else "answered")
    assert driven.trace.answer == "Li"


def test_endings() -> None:
    # The text may have as many tokens as the limit, with the special tokens that the tokenizer
    # adds.
    long = drive(reference("fs-rag", max_new_tokens=4), Say(" It is Bo."), Say(" Bo."))
    assert (long.trace.ended, long.trace.text) == ("length", " It is Bo.")
    single = drive(reference("wo-rag", max_new_tokens=2), Say(" It is Bo."), Say(" Bo."))
    assert (single.trace.ended, single.trace.text) == ("length", "It is")


def test_extraction_stands_after_the_stripped_and_cut_text() -> None:
    driven = drive(
        reference("wo-rag"),
        Say(" It is Bo. Question: Who"),
        Say(" Bo Ek. Note: x"),
        golds=("Bo Ek", "Li"),
    )
    assert driven.lm.prompts[1] == "Question: Who made it?\nAnswer: It is Bo.  So the answer is "
    assert driven.lm.drafts[1].max_new_tokens == 20
    assert driven.trace.answer == "Bo Ek"
    assert driven.trace.scores == {"em": 1, "f1": 1, "precision": 1, "recall": 1}
    assert driven.trace.text == "It is Bo. Question: Who</s>"
