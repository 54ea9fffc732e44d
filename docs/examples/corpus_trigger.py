"""QuCo-RAG's idea (arXiv 2512.19134) as a trigger of your own: what the corpus says of a sentence's
names.

It sees what no doubt of the model sees: a wrong value that is stated without doubt.

    lab = dl.Lab() define_corpus_trigger(lab.retriever.corpus) trace = lab.ask("Who directed the
    film The Ashen Rooftop?", when="corpus", what="current-without-hits")

QuCo-RAG has a language model read triples; here names are runs of capitalised words and numbers,
and the first one of a sentence is the subject of the others.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

import dragin_lab as dl

NAME = re.compile(r"(?:[A-Z][\w'’-]*|\d+)(?:\s+(?:[A-Z][\w'’-]*|\d+))*")


def define_corpus_trigger(corpus: dl.Corpus, name: str = "corpus") -> Any:
    """Enter a trigger that counts in how many passages of ``corpus`` the names of a sentence
    stand together.
    """

    @cache
    def count(*names: str) -> int:
        held = [re.compile(rf"\b{re.escape(one)}\b") for one in names]
        return sum(all(one.search(f"{p.title}\n{p.text}") for one in held) for p in corpus)

    @dl.when(name, threshold=0.5, unit="sentence", source="QuCo-RAG (arXiv 2512.19134)")
    def lack_of_support(draft: dl.Draft, pair: int = 1, alone: int = 20) -> np.ndarray:
        """τ / (τ + passages), above ½ below τ: for the subject with each later name (τ
        ``pair``), or ``alone``.
        """
        starts, stops = draft.offsets.T  # (n,), (n,)
        scores = np.zeros(len(draft))  # (n,)
        if "the answer is" in draft.text:
            return scores  # a sentence that concludes states nothing new
        names = [m for m in NAME.finditer(draft.text) if not draft.pipeline.is_stop(m[0])]
        for other in names[1:] or names:
            tau = pair if len(names) > 1 else alone
            score = tau / (tau + count(*dict.fromkeys((names[0][0], other[0]))))
            scores[(starts < other.end()) & (stops > other.start())] = score
        return scores

    return lack_of_support
