"""The examples of docs/examples run, and say what they say they do."""

from __future__ import annotations

import pytest
from answering import embedded
from scripted import Say, ScriptedModel
from scripts import loaded

import dragin_lab as dl

PASSAGES = [dl.Passage(str(i), "Bo Ek", f"Bo Ek made film {i}.") for i in range(20)] + [
    dl.Passage("21", "The Far Bell", "The Far Bell was directed by Li Al in 1902.")
]


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("The Far Bell is by Li Al.", 1 / 2),  # one passage has both
        ("The Far Bell is by Bo Ek.", 1.0),
        ("The Far Bell is by Li Al of 1901.", 1.0),  # the year stands nowhere
        ("It is by Bo Ek.", 1 / 2),  # alone, in twenty passages
        ("It is by Li Al.", 20 / 21),
        ("It was far.", 0.0),
        ("So the answer is Cy Xu.", 0.0),
    ],
)
def test_a_sentence_fires_whose_names_stand_together_in_no_passage(said: str, score: float) -> None:
    corpus = dl.Corpus.from_passages(PASSAGES)
    when = loaded("docs/examples/corpus_trigger.py").define_corpus_trigger(corpus, "own-corpus")
    script = [Say(f" {said} Then he"), *[Say(" So the answer is li. Then he")] * 2]
    lab = dl.Lab(ScriptedModel(script), retriever=dl.BM25(corpus))
    trace = lab.ask("Who directed The Far Bell?", when=when, what="current-without-hits")
    step = trace.steps[0]
    assert step.words.score.max() == pytest.approx(score)
    assert step.decision is not None
    assert step.decision.retrieve == (score > 0.5)
    if score == 1.0:
        assert trace.queries[0].startswith("The Far Bell is by")


def test_a_trigger_fitted_on_labelled_text_tells_missing_facts_on_other_questions() -> None:
    lab, labels = embedded(), dl.almanac.labels("2wikimultihopqa", "dev", 24)
    taught, other = (
        dl.Spans.of_labels(some, lab.template("wo-rag")) for some in (labels[:16], labels[16:])
    )
    when = loaded("docs/examples/fitted_trigger.py").fit_trigger(lab, taught, "own-fitted")
    areas = lab.judge(other).table.set_index("trigger")["area"]
    assert areas["own-fitted"] > max(0.8, areas["random"])
    trace = lab.ask(labels[0].question, when=when, threshold=0.01, max_new_tokens=32)
    assert trace.steps[0].decision is not None
    assert trace.steps[0].decision.retrieve
