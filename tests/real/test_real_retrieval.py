"""Dense retrieval by all-MiniLM-L6-v2 over real passages of about 100 words."""

from __future__ import annotations

from pathlib import Path

import pytest
from open_questions import QUESTIONS

from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.dense import Dense, open_encoder

pytestmark = [pytest.mark.real, pytest.mark.slow]

#: The titles that HotpotQA and 2WikiMultihopQA name as supporting facts, question by question.
GOLD = [
    {"Sivarama Swami", "Bhaktivedanta Manor"},
    {"East Lempster, New Hampshire", "Sullivan County, New Hampshire"},
    {"Battle of White Plains", "New York and New Jersey campaign"},
    {"Death in the Afternoon (cocktail)", "Hennchata"},
    {"Janise Yntema", "Bianca Halstead"},
    {"Git (song)", "Candan Erçetin"},
    {"Mord Em'ly", "Ek Hi Bhool (1940 film)", "George Pearson (filmmaker)", "Vijay Bhatt"},
    {"Steve Tesich", "Elizabeth Jane Gardner"},
]


def test_minilm_finds_the_supporting_passages(minilm: Path, corpus: Corpus) -> None:
    pytest.importorskip("sentence_transformers")
    golden = set.union(*GOLD)
    chosen = [p for number, p in enumerate(corpus) if p.title in golden or number % 3 == 0]
    assert len(chosen) > 250
    dense = Dense(Corpus.from_passages(chosen), open_encoder(str(minilm), "cpu"))
    titles_found = [{p.title for p in passages} for passages in dense.search_many(QUESTIONS, 10)]
    recalls = [
        len(titles & gold) / len(gold) for titles, gold in zip(titles_found, GOLD, strict=True)
    ]
    # a random ten of them hold 3 % of those
    assert all(recalls), "no supporting passage at all for a question"
    assert sum(recalls) / len(recalls) >= 0.7
