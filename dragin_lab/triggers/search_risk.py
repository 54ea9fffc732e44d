"""How undecided the retriever is about what a sentence names: the retrieval term of ReaLM-Retrieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Episode, Search
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger, Verdict
from dragin_lab.errors import TriggerError
from dragin_lab.trace.trace import Passage
from dragin_lab.triggers.corpus import Name, list_names, read_evidence

#: Passages over which the entropy is taken.
DEPTH = 100


def measure_spread(passages: Sequence[Passage]) -> float:
    """Entropy of the passages' scores over their sum, nats: 0 for one hit or none, log k for k equal ones.

    Raises ``TriggerError`` for scores that are not above 0, as BM25's are.
    """
    scores = np.array([passage.score for passage in passages], dtype=np.float64)  # (k,)
    if not (np.isfinite(scores) & (scores > 0)).all():
        bad = scores[~(np.isfinite(scores) & (scores > 0))][0]
        raise TriggerError(
            f"search-risk takes the entropy of scores above 0, and the retriever scored a passage {bad:g}; use bm25 or "
            "tantivy"
        )
    shares = scores / scores.sum()  # (k,)
    return float(-(shares * np.log(shares)).sum()) + 0.0  # not -0


def _names(draft: Draft) -> list[Name]:
    return [name for sentence in list_names(draft.pipeline, draft.text) for name in sentence]


@TRIGGERS.add
@dataclass(frozen=True)
class SearchRisk(Trigger):
    """The retriever cannot tell passages apart for a name in the sentence: entropy of its scores, nats.

    Of each name (a run of capitalised words and numbers) "What is NAME?" is searched, as ReaLM-Retrieve does, and not
    the sentence: what is around a name would add its own hits. The entropy over the best 100 passages stands on the
    name's tokens; every other token scores 0.
    """

    name, unit, cut = "search-risk", "sentence", "sentence"
    source = "ReaLM-Retrieve, its retrieval term alone, with a stand-in for named entities"
    threshold: float = setting(4.0, label="entropy of the search")  # as if 55 of 100 passages were equally good

    def consult(self, draft: Draft) -> Episode[Mapping[str, Any]]:
        searches = []
        for name in dict.fromkeys(name for name, _ in _names(draft)):
            passages: list[Passage] = yield Search(f"What is {name}?", DEPTH)
            searches.append([name, len(passages), measure_spread(passages)])
        return {"searches": searches}

    def score(self, draft: Draft) -> np.ndarray:
        entropy = {name: value for name, _, value in read_evidence(self, draft, "searches")}
        starts, stops = draft.offsets.T  # (n,), (n,)
        scores = np.zeros(len(draft))  # (n,)
        for name, (start, end) in _names(draft):
            scores[(starts < end) & (stops > start)] = entropy[name]
        return scores

    def describe_hit(self, verdict: Verdict) -> str:
        reason = super().describe_hit(verdict)
        searches = read_evidence(self, verdict.draft, "searches")
        for name, hits, _ in sorted(searches, key=lambda search: -search[2])[:1]:
            reason += f": 'What is {name}?' finds {hits} passages"
        return reason
