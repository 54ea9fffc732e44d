"""Where two traces part, and by how little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from factories import make_continuation, make_prompt

from dragin_lab.core.parting import parting
from dragin_lab.core.trace import Continuation, Question, Step, Trace

FIRST = make_continuation(make_prompt(), "It is Bo Ek. He left.")
SECOND = make_continuation(make_prompt("It is Bo Ek. He left."), "So the answer is Bo.", seed=8)


def record(*drafts: Continuation) -> Trace:
    return Trace(Question("q", "Who?"), {}, [Step(i, draft=draft) for i, draft in enumerate(drafts)])


def test_the_same_pieces_do_not_part() -> None:
    other = replace(FIRST, entropy=FIRST.entropy + 1e-6, seconds=3.0)
    assert parting(record(FIRST, SECOND), record(other, SECOND)) is None
    assert parting(record(), record()) is None


def test_the_first_other_piece_is_named_with_its_gap() -> None:
    ids, probs = SECOND.ids.copy(), SECOND.alternative_probs.copy()
    ids[2:] += 1
    probs[2, :2] = 0.4, 0.4 * np.exp(-5e-5)
    found = parting(record(FIRST, replace(SECOND, alternative_probs=probs)), record(FIRST, replace(SECOND, ids=ids)))
    assert found is not None
    assert (found.draft, found.piece) == (1, 2)
    assert found.gap == pytest.approx(5e-5, rel=1e-2)
    assert found.what.startswith("draft 1, piece 2: '▁answer'")


def test_what_is_no_choice_of_a_piece_has_no_gap() -> None:
    short = replace(FIRST, ids=FIRST.ids[:3], stopped="rind")
    for one, other, what in (
        (record(FIRST), record(short), "draft 0 ends after 8 pieces (length) and 3 (rind)"),
        (record(FIRST, SECOND), record(FIRST), "only one trace has a draft 1"),
        (record(FIRST, SECOND), record(FIRST, FIRST), "draft 1 has other prompts"),
    ):
        found = parting(one, other)
        assert found is not None
        assert (found.gap, found.what) == (None, what)


def test_a_single_alternative_leaves_nothing_to_confuse() -> None:
    one = replace(FIRST, alternative_probs=FIRST.alternative_probs[:, :1])
    found = parting(record(one), record(replace(FIRST, ids=FIRST.ids + 1)))
    assert found is not None
    assert found.gap == float("inf")
