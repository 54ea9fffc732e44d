"""DRAD: an improbable entity (github.com/oneal2000/sigir25-tutorial-dynamic, EntityRAG)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragin_lab.core.scores import pool_values
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.draft import Draft, Span, find_tokens

_SOLVERS = ("avg", "max", "min")


@TRIGGERS.add
@dataclass(frozen=True)
class Entity(Trigger):
    """An entity is improbable (DRAD): 1 - exp of its tokens' pooled log-probabilities, by
    sentence above θ.
    """

    name = "entity"
    unit = "sentence"
    cut = "sentence"
    source = "DRAD (github.com/oneal2000/sigir25-tutorial-dynamic, EntityRAG)"
    needs = ("entities",)
    threshold: float = setting(0.5, label="1 − entity probability", top=1.0)
    entity_solver: str = setting(
        "avg", choices=(*_SOLVERS, "first"), label="pooling over an entity's log-probabilities"
    )
    sentence_solver: str = setting(
        "max", choices=_SOLVERS, label="pooling over a sentence's entities"
    )

    def spans(self, draft: Draft) -> Sequence[Span]:
        """Half-open characters of the draft's entities."""
        draft.pipeline.require_entities()
        return [(ent.start_char, ent.end_char) for ent in draft.pipeline.nlp(draft.text).ents]

    def _find_entities(self, draft: Draft) -> list[tuple[np.ndarray, float]]:
        """The tokens (m,) of each entity, and how improbable it is."""
        entities = []
        for start, stop in self.spans(draft):
            tokens = find_tokens(draft.offsets, start, stop)
            if len(tokens):
                pooled = pool_values(draft.logprob[tokens], self.entity_solver)
                entities.append((tokens, -math.expm1(pooled)))
        return entities

    def score(self, draft: Draft) -> np.ndarray:
        scores = np.zeros(len(draft))  # (n,)
        for tokens, doubt in self._find_entities(draft):
            scores[tokens] = doubt
        return scores

    def score_unit(self, draft: Draft, counts: np.ndarray | None = None) -> float:
        doubt = np.array([doubt for _, doubt in self._find_entities(draft)])
        return pool_values(doubt, self.sentence_solver) if len(doubt) else -np.inf
