"""Branches of scripted episodes: what is replayed, what is forced, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import EOS, QUESTION, Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.catalog.by_name import method
from dragin_lab.errors import DraginLabError, SettingError, TraceFileError
from dragin_lab.lab import Lab
from dragin_lab.trace.trace import Branches, Trace

DRAGIN = method("dragin", what="question")
LOUD = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}}
SCRIPT = (Say(" It is by Bo Ek, a man", **LOUD), Say(" Li. So the answer is Li.\nThen he"))


def ask(chosen: Any = DRAGIN, *script: Say, **options: Any) -> tuple[Lab, Trace]:
    """A lab and the trace of its scripted answer; what its model is to say next goes into
    ``lab.model.script``.
    """
    lab = Lab(ScriptedModel(script or SCRIPT, **options), retriever=ScriptedRetriever())
    return lab, lab.ask(QUESTION, chosen, gold="Li")


def asked_for(lab: Lab) -> list[str]:
    """The queries that its retriever was sent."""
    queries: list[str] = lab.retriever.own.queries  # type: ignore[attr-defined]
    return queries


def say(lab: Lab, *script: Say) -> None:
    lab.model.script[:] = script
    lab.model.drafts.clear()
    asked_for(lab).clear()


def branched(*script: Say, **change: Any) -> tuple[Lab, Trace, Trace]:
    """A lab, the trace of its answer, and the branch with this change, in which its model says
    the script.
    """
    lab, trace = ask()
    say(lab, *script)
    return lab, trace, lab.branch(trace, **change)


def test_a_token_is_replaced_and_the_episode_goes_on_from_there() -> None:
    lab, trace, branch = branched(Say(" Ek. So the answer is Al Ek."), step=2, token=1, to="Al")
    (draft,) = lab.model.drafts  # the first step is the trace's
    assert lab.model.tokenizer.decode(draft.prefix, special=True) == "Al"
    assert asked_for(lab) == []
    assert branch.text == " It is by Al Ek. So the answer is Al Ek."
    assert (branch.answer, branch.scores["em"], trace.scores["em"]) == ("Al Ek", 0, 1)
    assert branch.steps[0] is trace.steps[0]
    parting = branch.parting
    assert (parting.parent, parting.kind, parting.step, parting.token) == (
        trace.fingerprint,
        "token",
        1,
        0,
    )
    assert (parting.source, parting.before, parting.after) == ("draft", "Li", "Al")
    assert str(parting) == "step 2, token 1: token 'Li' → 'Al'"


@pytest.mark.parametrize(
    ("place", "to", "forced", "rest"),
    [
        ({"step": 1, "token": 3}, " with", " It is with", " his dog. So the answer is Rex."),
        # several for one
        ({"step": 2, "token": 1}, "Al and Li.", " Al and Li.", " So the answer is Li."),
    ],
)
def test_the_tokens_up_to_the_one_replaced_are_forced(
    place: dict[str, int], to: str, forced: str, rest: str
) -> None:
    lab, _, branch = branched(Say(rest), **place, to=to)
    assert lab.model.tokenizer.decode(lab.model.drafts[0].prefix, special=True) == forced.strip()
    assert branch.text == " It is by" * (place["step"] == 2) + forced + rest
    assert branch.retrievals_count == place["step"] - 1


def test_an_alternative_is_named_by_its_text_with_or_without_its_space() -> None:
    lab, trace = ask()
    draft = trace.steps[1].draft
    other = lab.model.tokenizer.encode(" Al", special=False)[0]
    draft.alternative_ids[0, 1] = other
    draft.alternative_tokens = ((" Li", " Al"), *((" x", " y"),) * (len(draft) - 1))
    for to in (" Al", "Al", other):
        say(lab, Say(". So the answer is Al."))
        lab.branch(trace, step=2, token=1, to=to)
        assert lab.model.drafts[0].prefix == (other,)


def test_a_forced_end_mark_ends_the_draft() -> None:
    lab, trace = ask()
    say(lab, Say(""), Say(" Bo."))
    assert lab.branch(trace, step=2, token=4, to=EOS).steps[1].draft.stopped == "eos"  # type: ignore[union-attr]


def test_another_query_is_searched_for() -> None:
    lab, trace, branch = branched(SCRIPT[1], step=1, query="another thing")
    assert asked_for(lab) == ["another thing"]
    query = branch.steps[0].query
    assert (query.text, query.sent, query.note) == (
        "another thing",
        "another thing",
        f"in place of {QUESTION!r}",
    )
    assert branch.steps[0].draft is trace.steps[0].draft
    assert len(lab.model.drafts) == 1
    assert branch.answer == "Li"


@pytest.mark.parametrize(
    "given",
    [["It was Al."], [dl.Passage("9", "", "It was Al.")], [{"id": "9", "text": "It was Al."}], []],
)
def test_other_passages_stand_in_the_prompt(given: Any) -> None:
    lab, _, branch = branched(Say(" Al. So the answer is Al."), step=1, passages=given)
    assert asked_for(lab) == []
    assert (
        ("[1] It was Al.\n" in lab.model.prompts[0])
        == ("Context" in lab.model.prompts[0])
        == bool(given)
    )
    assert "First passage" not in lab.model.prompts[0]
    assert [passage.text for passage in branch.steps[0].passages] == ["It was Al."] * len(given)
    assert branch.parting.before == "0, 1, 2"


def test_without_its_retrieval_the_sentence_is_written_on() -> None:
    lab, _, branch = branched(Say(" a man. So the answer is Bo Ek."), step=1, retrieve=False)
    assert lab.model.tokenizer.decode(lab.model.drafts[0].prefix, special=True) == "It is by Bo Ek,"
    assert branch.text == " It is by Bo Ek, a man. So the answer is Bo Ek."
    decision = branch.steps[0].decision
    assert not decision.retrieve
    assert decision.reason.startswith("the branch does not retrieve here; ")
    assert (branch.parting.before, branch.parting.after) == ("retrieve", "go on")


def test_a_word_that_was_passed_over_does_not_fire_again_while_its_sentence_goes_on() -> None:
    lab, _, branch = branched(Say(" a man. So the answer is Li.", **LOUD), step=1, retrieve=False)
    assert branch.text == " It is by Bo Ek, a man. So the answer is Li."
    assert branch.steps[0].words.text[3] == "Bo"
    assert branch.steps[0].words.score[3] > branch.method["threshold"]
    assert asked_for(lab) == []


def test_a_draft_that_did_not_fire_retrieves_at_its_highest_word_or_at_a_token() -> None:
    quiet = Say(
        " It is by Bo Ek. So the answer is Bo Ek.", entropy={"Ek": 0.3}, received={"Ek": 0.4}
    )
    lab, trace = ask(DRAGIN, quiet)
    assert trace.retrievals_count == 0
    for token, before in ((None, " It is by Bo"), (4, " It is by")):
        say(lab, Say(" Li. So the answer is Li."))
        branch = lab.branch(trace, step=1, token=token, retrieve=True)
        assert branch.text == before + " Li. So the answer is Li."
        assert branch.queries == [QUESTION]
        assert branch.steps[0].draft is trace.steps[0].draft
        assert branch.steps[0].decision.reason.startswith("the branch retrieves here, at ")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "step", "rest"),
    [("flare", 1, (" He left. So", " So the answer is Bo.")), ("targ", 0, ())],
)
def test_decisions_on_a_sentence_and_on_a_draft_are_flipped_too(
    name: str, step: int, rest: tuple[str, ...]
) -> None:
    whole = " It is Bo. He left. So the answer is Bo."
    lab, trace = ask(method(name, threshold=0.9), *map(Say, (whole, *rest)))
    assert not trace.steps[step].decision.retrieve  # type: ignore[union-attr]
    say(lab, Say(" It is Li. So"), Say(" So the answer is Li.")) if rest else say(
        lab, Say(" So the answer is Li.")
    )
    branch = lab.branch(trace, step=step + 1, retrieve=True)
    assert branch.steps[step].query is not None
    assert branch.answer == "Li"
    say(lab, *map(Say, rest))
    back = lab.branch(branch, step=step + 1, retrieve=False)
    assert back.steps[step].query is None
    assert back.text == trace.text


@pytest.mark.parametrize(
    "first",
    [
        {"query": "another"},
        {"passages": ["It was Al."]},
        {"retrieve": False},
        {"retrieve": True, "token": 2},
    ],
    ids=lambda first: next(iter(first)) + str(next(iter(first.values()))),
)
def test_a_branch_is_branched_after_any_change(first: dict[str, Any]) -> None:
    lab, trace = ask()
    loud = Say(" a man. He is Al Ek, too", entropy={"Al": 9.0}, received={"Al": 0.5})
    say(lab, *[loud] * (first.get("retrieve") is False), Say(" Li. So the answer is Li."))
    branch = lab.branch(trace, step=1, **first)
    last = branch.steps[1].draft
    say(lab, Say(". So the answer is Li."))
    assert branch.diff(lab.branch(branch, step=2, token=1, to=int(last.ids[0]))) == ""
    say(lab, Say(" Ek. So the answer is Al Ek."))
    twig = lab.branch(branch, step=2, token=1, to="Al")
    assert twig.answer == "Al Ek"
    assert twig.steps[0] is branch.steps[0]
    say(lab, Say(" Bo. So the answer is Bo."))
    same_step = lab.branch(branch, step=1, passages=["It was Bo."])
    assert (same_step.answer, same_step.queries) == ("Bo", branch.queries)


def test_the_extraction_has_branches_too() -> None:
    lab, trace = ask(DRAGIN, Say(" It is Bo."), Say(" Bo."))
    say(lab, Say("."))
    branch = lab.branch(trace, source="extraction", token=1, to="Al")
    assert (trace.answer, branch.answer) == ("Bo", "Al")
    assert str(branch.parting) == "answer, token 1: token 'Bo' → 'Al'"
    assert trace.steps[-1].seconds.keys() == {"draft"}


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({}, "nothing is given; give token= and to="),
        ({"step": 1, "query": "a", "retrieve": True}, "query and retrieve is given"),
        ({"step": 3, "query": "a"}, r"step=3: the trace has steps 1 to 2; give one of them"),
        ({"step": 0, "query": "a"}, r"step=0: the trace has steps 1 to 2; give one of them"),
        ({"query": "a"}, r"step=None: the trace has steps 1 to 2"),
        (
            {"step": 2, "query": "a"},
            r"step=2: nothing was searched for there; steps with a query: 1",
        ),
        ({"step": 1, "query": " "}, "query=' ' is empty"),
        (
            {"step": 1, "query": "a", "token": 4},
            r"token=4: goes with to= or retrieve=True; leave it out with query=",
        ),
        ({"step": 1, "passages": [3]}, "result 1 is int"),
        (
            {"step": 2, "token": 100, "to": "a"},
            r"token=100: the draft of step 2 has tokens 1 to 9; give one of them",
        ),
        ({"step": 2, "token": 0, "to": "a"}, r"token=0: the draft of step 2 has tokens 1 to 9"),
        ({"step": 2, "to": "a"}, r"token=None: the draft of step 2 has tokens 1 to 9"),
        (
            {"step": 2, "token": 1, "to": 10**6},
            r"to=1000000: the vocabulary has ids 0 to \d+; give one of them",
        ),
        ({"step": 2, "token": 1, "to": ""}, "to='' is empty; give the text or the id of a token"),
        (
            {"step": 2, "token": 1, "to": "a", "source": "continuation"},
            "the continuation of step 2 does not exist",
        ),
        (
            {"step": 2, "token": 1, "to": "a", "source": "query"},
            "source='query': .*one of draft, continuation",
        ),
        ({"token": 1, "to": "a", "source": "extraction"}, "the extraction does not exist"),
        (
            {"step": 1, "token": 4, "retrieve": False},
            r"token=4: says where to retrieve; leave it out",
        ),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_with_what_can(
    change: dict[str, Any], match: str
) -> None:
    lab, trace = ask()
    with pytest.raises(DraginLabError, match=match):
        lab.branch(trace, **change)


def test_decisions_by_the_clock_and_of_the_released_code_are_not_flipped() -> None:
    lab, trace = ask(method("sr-rag"), Say(" So the answer is Bo."))
    with pytest.raises(
        SettingError, match="no trigger judged a draft in step 1; ask with another method"
    ):
        lab.branch(trace, step=1, retrieve=False)
    lab, trace = ask(
        method("flare", threshold=0.9), Say(" It is Bo. So the"), Say(" So the answer is Bo.")
    )
    with pytest.raises(
        SettingError, match="step 2 has no judged word at token 5, so nothing says what"
    ):
        lab.branch(trace, step=2, token=5, retrieve=True)
    lab, trace = ask(method("wo-rag", variant="reference"), Say(" So the answer is Bo."))
    with pytest.raises(
        SettingError, match="the released code's decisions are not flipped; use variant='paper'"
    ):
        lab.branch(trace, step=1, retrieve=True)


def test_where_nothing_was_retrieved_none_can_be_left_out() -> None:
    lab, trace = ask()
    kept = next(step for step in trace.steps if step.decision and not step.decision.retrieve)
    searched = ", ".join(str(step.index + 1) for step in trace.steps if step.query is not None)
    with pytest.raises(
        SettingError, match=f"step {kept.index + 1} did not retrieve.*that retrieved: {searched}$"
    ):
        lab.branch(trace, step=kept.index + 1, retrieve=False)


def test_a_trace_of_another_lab_is_refused() -> None:
    lab, trace = ask()
    trace.provenance["model"] = {"id": "another"}
    with pytest.raises(
        SettingError, match=r"made otherwise than this lab asks .*'another'.*branch it with"
    ):
        lab.branch(trace, step=2, token=1, to="Al")


def test_an_episode_that_strays_from_its_record_is_refused() -> None:
    lab, trace = ask()
    for change in ({"question": replace(trace.question, text="Another?")}, {}):
        strayed = replace(trace, **change)
        if not change:
            trace.steps[0].query.sent = "another"
        with pytest.raises(
            SettingError, match="which the trace does not say; ask the question again"
        ):
            lab.branch(strayed, step=2, token=1, to="Al")


def test_a_view_of_a_branch_says_where_it_parts() -> None:
    _, trace, branch = branched(Say(" Ek. So the answer is Al Ek."), step=2, token=1, to="Al")
    assert "parts at step 2, token 1: token 'Li' → 'Al'" in views.trace(branch).text.replace(
        "\n              ", " "
    )
    assert "parts at" not in views.trace(trace).text


# -- trees -----------------------------------------------------------------------------------------


def grow() -> Branches:
    lab, trace = ask()
    tree = Branches.of(trace)
    for number, to in ((0, "Al"), (0, "Bo"), (1, "Ek")):
        say(lab, Say(" Ek. So the answer is Al Ek."))
        tree.add(lab.branch(tree[number], step=2, token=1, to=to))
    return tree


def test_a_tree_says_what_parts_from_what() -> None:
    tree = grow()
    assert [tree.parent(i) for i in range(4)] == [None, 0, 0, 1]
    assert tree.path(3) == [0, 1, 3]
    assert str(tree).splitlines() == [
        "0  Who made it?: 'Li' ✓",
        "  1  step 2, token 1: token 'Li' → 'Al': 'Al Ek' ✗",
        "  2  step 2, token 1: token 'Li' → 'Bo': 'Al Ek' ✗",
        "    3  step 2, token 1: token 'Al' → 'Ek': 'Al Ek' ✗",
    ]
    assert tree.add(tree[2]) is tree[2]
    assert len(tree) == 4
    with pytest.raises(SettingError, match="parts from none of the 1 traces"):
        Branches.of(tree[0]).add(tree[3])


def test_a_tree_is_one_file(tmp_path: Path) -> None:
    tree = grow()
    path = tree.save(tmp_path / "tree.safetensors")
    read = Branches.load(path)
    assert str(read) == str(tree)
    for ours, theirs in zip(read, tree, strict=True):
        assert theirs.diff(ours) == ""
        assert (ours.parting, ours.fingerprint) == (theirs.parting, theirs.fingerprint)


def test_files_of_trees_and_of_traces_name_each_other(tmp_path: Path) -> None:
    tree = grow()
    with pytest.raises(
        TraceFileError, match=r"holds a tree of branches, which Branches\.load reads"
    ):
        Trace.load(tree.save(tmp_path / "tree"))
    with pytest.raises(TraceFileError, match=r"holds one trace, which Trace\.load reads"):
        Branches.load(tree[0].save(tmp_path / "trace"))
