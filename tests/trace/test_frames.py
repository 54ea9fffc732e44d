"""Traces as tables and as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from answering import embedded
from factories import DRAFT, make_passages, make_trace

from dragin_lab.trace.trace import Question, Step, Trace

# -- tokens ----------------------------------------------------------------------------------------


def test_token_table_has_a_row_for_every_token() -> None:
    trace = make_trace()
    table = trace.tokens
    assert len(table) == trace.counters["generated"]
    parts = table.groupby(["step", "source"], sort=False, dropna=False)
    assert [name for name, _ in parts][:3] == [(1, "draft"), (1, "continuation"), (2, "draft")]
    for made, (_, part) in zip(trace.continuations, parts, strict=True):
        assert part["index"].tolist() == list(range(len(made)))
        assert part["id"].tolist() == made.ids.tolist()
        assert tuple(part["token"]) == made.pieces
        assert "".join(part["text"]) == made.text
        for name in ("entropy", "logprob", "received"):
            np.testing.assert_array_equal(part[name], getattr(made, name))
        np.testing.assert_allclose(part["probability"], np.exp(made.logprob), rtol=1e-6)


def test_token_table_knows_the_word_of_each_token() -> None:
    trace = make_trace()
    words = trace.steps[0].words
    draft = trace.tokens.query("step == 1 and source == 'draft'")
    for i, (start, stop) in enumerate(words.spans.tolist()):
        tokens = draft.iloc[start:stop]
        assert tokens["word"].tolist() == [i] * (stop - start)
        np.testing.assert_array_equal(tokens["score"], words.score[i])
        assert tokens["stop"].tolist() == [words.stop[i]] * (stop - start)
    assert draft.loc[draft["hit"].fillna(False), "text"].tolist() == [" Andrzej"]
    others = trace.tokens.query("source != 'draft'")
    for name in ("word", "sentence", "score", "stop", "hit"):
        assert others[name].isna().all()


def test_token_table_says_what_was_kept() -> None:
    trace = make_trace()
    table = trace.tokens
    thrown = table[~table["kept"] & (table["source"] != "extraction")]
    assert "".join(thrown["text"]) == trace.steps[0].discarded
    kept = "".join(table.loc[table["kept"], "text"])
    assert kept == trace.text
    assert table.loc[table["token"] == "</s>", "kept"].tolist() == [True]
    assert len(thrown) == trace.counters["discarded"]
    assert not table.loc[table["source"] == "extraction", "kept"].any()


def test_token_table_follows_what_was_thrown_away_without_a_retrieval() -> None:
    trace = make_trace()
    last = trace.steps[1]
    last.decision.cut = len(last.draft.text) - 3
    kept = trace.tokens.query("step == 2 and kept")
    assert "".join(kept["text"]) == last.draft.text[:-3]
    last.decision = None  # under way: nothing of the draft is in the answer yet
    assert not trace.tokens.query("step == 2")["kept"].any()


def test_tokens_that_share_a_character_show_the_same_text() -> None:
    trace = make_trace()
    draft = trace.steps[0].draft
    draft.offsets[1] = draft.offsets[2]
    assert trace.tokens["text"].tolist()[1:3] == [" of", " of"]


def test_tables_of_an_empty_trace_have_their_columns() -> None:
    trace = Trace(Question("", ""), {}, steps=[Step(0)])
    for empty, full in (
        (trace.tokens, make_trace().tokens),
        (trace.retrievals, make_trace().retrievals),
    ):
        assert len(empty) == 0
        pd.testing.assert_series_equal(empty.dtypes, full.dtypes)


# -- retrievals ------------------------------------------------------------------------------------


def test_retrieval_table() -> None:
    trace = make_trace()
    table = trace.retrievals
    assert table["rank"].tolist() == [1, 2]
    assert table["step"].tolist() == [1, 1]
    assert table["query"].unique().tolist() == ["director Polish-Russian War mother"]
    for name in ("id", "title", "text", "score"):
        assert table[name].tolist() == [getattr(p, name) for p in make_passages()]


def test_a_retrieval_that_found_nothing_is_one_row() -> None:
    trace = make_trace()
    trace.steps[1].query = replace(trace.steps[0].query, sent="nothing like it")
    table = trace.retrievals
    assert table["step"].tolist() == [1, 1, 2]
    last = table.iloc[2]
    assert last["query"] == "nothing like it"
    assert last[["rank", "id", "title", "text", "score"]].isna().all()
    assert len(table.dropna(subset="id")) == 2


# -- differences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (lambda t: t.method.update(threshold=1.0), ["method.threshold: 1.2 → 1.0"]),
        (lambda t: t.method.pop("top_n"), ["method.top_n: 25 → '(absent)'"]),
        (
            lambda t: setattr(t.steps[0].draft, "text", DRAFT.replace("Andrzej", "Xawery")),
            [
                "step 1.draft.text: '…lish-Russian War is Andrzej Wajda.' → '…lish-Russian War is"
                " Xawery Wajda.'"
            ],
        ),
        (
            lambda t: t.steps[0].draft.entropy.__setitem__(3, 7),
            ["step 1.draft.entropy: 1 of 12 differ"],
        ),
        (
            lambda t: setattr(t.steps[0], "passages", t.steps[0].passages[:1]),
            ["step 1.passages: (Passage(id='17'"],
        ),
        (
            lambda t: setattr(t.steps[0], "passages", t.steps[0].passages[::-1]),
            ["step 1.passages[0].id: '17' → '4'", "step 1.passages[1].id: '4' → '17'"],
        ),
        (
            lambda t: setattr(t, "extraction", None),
            ["extraction: Draft", "counters.drafts: 4 → 3", "counters.g"],
        ),
        (lambda t: t.steps.append(Step(2)), ["steps: 2 → 3"]),
    ],
)
def test_names_what_differs(change: Callable[[Trace], Any], lines: list[str]) -> None:
    trace, other = make_trace(), make_trace()
    change(other)
    found = trace.diff(other).splitlines()
    assert len(found) == len(lines), found
    for line, expected in zip(found, lines, strict=True):
        assert expected in line


def test_only_the_first_step_that_differs_is_listed() -> None:
    trace, other = make_trace(), make_trace()
    for step in other.steps:
        step.kept = "else"
    assert [line.split(":")[0] for line in trace.diff(other).splitlines()] == ["step 1.kept"]


def test_another_reason_for_the_same_decision_does_not_hide_later_steps() -> None:
    trace, other = make_trace(), make_trace()
    for step in other.steps:
        step.decision.reason += "!"
    other.steps[1].kept = "else"
    paths = [line.split(":")[0] for line in trace.diff(other).splitlines()]
    assert paths == ["step 1.decision.reason", "step 2.decision.reason", "step 2.kept"]


MEASURED = {"attributed", "other_ways"}  # afterwards, and no part of what happened
WHOLE = sorted(
    {f.name for f in fields(Trace)} - {"steps", "seconds", "parting", "extraction"} - MEASURED
)


@pytest.mark.parametrize("name", WHOLE)
def test_no_field_of_a_trace_is_overlooked(name: str) -> None:
    trace, other = make_trace(), make_trace()
    setattr(other, name, "else")
    assert trace.diff(other).startswith(name)


def test_numbers_that_hardly_differ_are_one_line_with_a_count() -> None:
    trace, other = make_trace(), make_trace()
    draft, words = other.steps[0].draft, other.steps[0].words
    draft.entropy = draft.entropy + np.float32(0.004)
    words.score = words.score + np.float32(0.004)
    assert trace.diff(other) == "2 arrays differ by at most 0.01"
    words.score = words.score + 1
    other.answer = "x"
    first, second, third = trace.diff(other).splitlines()
    assert first.startswith("step 1.words.score: ")
    assert second.startswith("answer: ")
    assert third.startswith("1 arrays differ")


def test_what_a_notebook_shows_for_a_bare_name_is_made_for_people():
    import dragin_lab as dl

    lab = embedded().replace(cache=True)
    trace = lab.ask("Who directed The Silent Fukain?", threshold=0.3)
    step = next((one for one in trace.steps if one.query is not None), trace.steps[0])
    assert (
        max(len(repr(one)) for one in (trace, step.draft, dl.Replay(trace).at(threshold=0.5))) < 400
    )
    packaged = dl.Runs.load(Path(__file__).parents[2] / "corpora" / "almanac_methods.zip")
    plain = [packaged.compared(), packaged.records[0], lab.model, lab.retriever, trace.question]
    exemplar = dl.Exemplar("Is the sky blue?", "The sky is blue.", "yes")
    objects = [lab, dl.Corpus.load(), dl.method("flare"), dl.methods(), dl.methods("when")]
    asked = dl.Question("q", trace.question.text, ("1933",))
    objects += [dl.Replay(trace), dl.Branches.of(trace), step, dl.benchmark([asked])]
    objects += [dl.PromptTemplate((exemplar,))]
    plain += [dl.compare([trace, trace]), trace.overview()]
    objects += [packaged, packaged.table(), packaged.difference(*packaged.names[:2])]
    for one in objects:
        html = one._repr_html_()
        assert html.count("<") == html.count(">")
        assert "object at 0x" not in html
    for one in [*objects, *plain, exemplar]:
        assert len(repr(one)) < 400, one
        assert repr(one).count("\n") < 3
        assert "object at 0x" not in repr(one)
    assert "Almanac" in lab._repr_html_()
    assert repr(trace.diff(trace)) == "no difference"
    assert trace.diff(trace) == ""
