"""Calls on the embedded model; what it answers with them is among the recorded answers."""

from __future__ import annotations

import numpy as np
from answering import demo_questions, embedded

import dragin_lab as dl
from dragin_lab.core.answers import CALL_OPENS
from dragin_lab.core.episode import Bias, Write
from dragin_lab.run.setup import default_template


def test_a_forbidden_call_is_not_opened_and_a_bonus_opens_one() -> None:
    method, lm = dl.method("flare-instruct"), embedded().model
    lab = dl.Lab(lm, retriever=dl.BM25(dl.Corpus.load()))
    asked = (lab.ask(question, method) for question in demo_questions()[:4])
    step = next(step for trace in asked for step in trace.steps if step.query is not None)
    assert step.prompt is not None
    at = step.draft.text.index(" [Search(")
    first = int(np.flatnonzero(step.draft.offsets[:, 0] >= at)[0])
    forbidden = lm.write(Write(step.prompt, first + 6, bias=(Bias(CALL_OPENS, float("-inf")),)))
    assert forbidden.ids[:first].tolist() == step.draft.ids[:first].tolist()
    assert "[" not in forbidden.text
    opened = lm.write(
        Write(default_template(lm, method).render("Who?"), 2, bias=(Bias(CALL_OPENS, 100.0),))
    )
    assert opened.text.startswith("[")
