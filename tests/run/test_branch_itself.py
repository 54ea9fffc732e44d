"""On the embedded model: what was there before gives the trace itself, to the bit, for every
method and engine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from answering import demo_questions, embedded

import dragin_lab as dl
from dragin_lab.core.method import METHODS
from dragin_lab.engines.load import LanguageModel
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.run.cache import Cache
from dragin_lab.trace.file import load_trace, save_trace
from dragin_lab.trace.kept import list_written
from dragin_lab.trace.trace import Trace

#: "entity-rag" needs a pipeline that finds entities. One of each loop is quick: on drawn models it
#: is a law.
QUICK = [("dragin", "paper"), ("dragin", "reference"), ("flare", "paper"), ("search-r1", "paper")]
CELLS = [
    pytest.param(name, variant, marks=() if (name, variant) in QUICK else pytest.mark.deep)
    for variant, names in (("paper", METHODS), ("reference", REFERENCE_METHODS))
    for name in names
    if name != "entity-rag"
]


@cache
def parts() -> tuple[Any, Any]:
    return embedded().model, dl.BM25(dl.Corpus.load())


@cache
def drafts() -> Cache:
    """Of the tests on what is read from drafts, not on how they are written."""
    return Cache()


def lab(**options: Any) -> dl.Lab:
    model, retriever = parts()
    return dl.Lab(model, retriever=retriever, **options)


def unchanged(trace: Trace, *, decisions: bool = True) -> list[dict[str, Any]]:
    """Changes of a trace to what it has: tokens in its first and last text, queries, their
    passages, decisions.
    """
    texts = [
        (step.index, source, text, len(text) // 2)
        for step, source, text in list_written(trace.steps)
    ]
    tokens = [
        {"step": i + 1, "source": name, "token": t + 1, "to": int(text.ids[t])}
        for i, name, text, t in texts
    ]
    if trace.extraction is not None:
        tokens.append({"source": "extraction", "token": 1, "to": int(trace.extraction.ids[0])})
    asked = [step for step in trace.steps if step.query is not None]
    judged = [
        step
        for step in trace.steps
        if decisions and step.draft is not None and step.decision is not None
    ]
    kinds = [
        tokens,
        [
            {"step": step.index + 1, "query": step.query.text}
            for step in asked
            if step.query is not None
        ],
        [{"step": step.index + 1, "passages": step.passages} for step in asked],
        [
            {"step": step.index + 1, "retrieve": step.decision.retrieve}
            for step in judged
            if step.decision is not None and step.decision.retrieve
        ],
    ]
    return [changes[i] for changes in kinds for i in sorted({0, len(changes) - 1}) if changes]


def question(method: Any, asking: dl.Lab) -> Trace:
    """The first question whose episode retrieves, where the method does; else the last."""
    trace = None
    for one in demo_questions()[:8]:
        trace = asking.ask(one, method)
        if trace.retrievals_count > 1:
            break
    assert trace is not None
    return trace


@pytest.mark.parametrize(("name", "variant"), CELLS)
def test_every_method(name: str, variant: str) -> None:
    method, asking = dl.method(name, variant=variant), lab(cache=True)
    trace = question(method, asking)
    flips = variant == "paper" and method.trigger.loop in ("look-ahead", "flare", "prefix")
    changes = list(unchanged(trace, decisions=flips))
    assert changes
    for change in changes:
        branch = asking.branch(trace, **change)
        assert trace.diff(branch) == "", change
        assert branch.counters["generated"] == trace.counters["generated"]


@pytest.mark.parametrize("name", ["dragin", "flare"])
def test_samples_after_the_parting_are_those_of_the_trace(name: str) -> None:
    model = LanguageModel.load(sample=True)
    sampling = dl.Lab(model, retriever=parts()[1], seed=7)
    trace = sampling.ask(demo_questions()[0], name)
    assert [c.ids.tolist() for c in trace.continuations] != [
        c.ids.tolist() for c in lab().ask(demo_questions()[0], name).continuations
    ]
    for change in unchanged(trace, decisions=False):
        assert trace.diff(sampling.replace(seed=0).branch(trace, **change)) == ""


@pytest.mark.parametrize("slim", [False, True])
def test_what_a_trigger_reads_is_there_again_in_a_stored_trace(tmp_path: Any, slim: bool) -> None:
    @dl.when("two-sides", threshold=0.6, needs=("attention", "hidden:1"))
    def two_sides(draft: dl.Draft) -> np.ndarray:
        """What the token does not pay itself, and a component of its state."""
        rows, n = draft.attention, len(draft)
        return (
            1
            - rows[:, range(n), range(rows.shape[2] - n, rows.shape[2])].mean(0)
            + draft.hidden[:, 0]
        )

    for method in (dl.method("dragin"), dl.method(when="two-sides", what="question")):
        trace = question(method, lab(cache=drafts()))
        stored = load_trace(
            Trace, save_trace(trace, tmp_path / "t", slim=slim, hidden=method.name != "dragin")
        )
        for change in unchanged(stored):
            branch = lab(cache=drafts()).branch(stored, **change)
            assert [c.ids.tolist() for c in branch.continuations] == [
                c.ids.tolist() for c in trace.continuations
            ]
            assert [step.decision for step in branch.steps] == [
                step.decision for step in trace.steps
            ]
            assert (branch.queries, branch.answer, branch.scores) == (
                trace.queries,
                trace.answer,
                trace.scores,
            )


def test_another_token_gives_another_answer_that_the_same_method_writes() -> None:
    """The branch goes on as an episode does whose text so far is that of the branch."""
    asking = lab(cache=True)
    for one in demo_questions()[:4]:
        trace = asking.ask(one, "dragin")
        step = next(s for s in trace.steps if s.draft is not None and len(s.draft) > 3)
        rank = int(step.draft.alternative_ids[2, 0] == step.draft.ids[2])
        other = int(step.draft.alternative_ids[2, rank])
        branch = asking.branch(trace, step=step.index + 1, token=3, to=other)
        draft = branch.steps[step.index].draft
        assert draft.ids[:3].tolist() == [*step.draft.ids[:2].tolist(), other]
        # measured as if the model had written it
        assert draft.entropy[:3].tolist() == step.draft.entropy[:3].tolist()
        assert np.exp(draft.logprob[2]) == pytest.approx(
            step.draft.alternative_probs[2, rank], rel=1e-4
        )
        assert branch.ended == "answered"
        made = asking.cache.counts.drafts_made
        assert asking.branch(trace, step=step.index + 1, token=3, to=other).diff(branch) == ""
        assert asking.cache.counts.drafts_made == made  # branches share the cache
