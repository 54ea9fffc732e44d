"""Every trigger that came after DRAGIN, in the order in which lists show them; importing this enters them by name."""

from __future__ import annotations

from dragin_lab.core import triggers
from dragin_lab.triggers import (
    attention_score,
    call,
    corpus,
    entities,
    etc,
    fisher_rao,
    max_probability,
    plain,
    prefix,
    probe,
    rauq,
    renyi,
    search_risk,
    self_certainty,
)

_UNCERTAINTY = (max_probability, renyi, fisher_rao, self_certainty, attention_score, rauq)
_RETRIEVER = (corpus, search_risk)
BUILT_IN = (triggers, call, etc, plain, prefix, entities, probe, *_UNCERTAINTY, *_RETRIEVER)
