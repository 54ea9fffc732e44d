"""The examples of docs/examples run, and say what they say they do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from answering import embedded
from scripted import Say, ScriptedModel
from scripts import ROOT, loaded

import dragin_lab as dl

PASSAGES = [dl.Passage(str(i), "Bo Ek", f"Bo Ek made film {i}.") for i in range(20)] + [
    dl.Passage("21", "The Far Bell", "The Far Bell was directed by Li Al in 1902.")
]

#: ROC area and average precision of 12 questions, recorded at commit e96b164a.
RECORDED = {
    "entropy-trend": (0.9583, 0.9693),
    "random": (0.5990, 0.6356),
    "rind": (1.0, 1.0),
}


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


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recipe that judges spans, where another one finds it beside itself."""
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples"))
    return loaded("docs/examples/judge_spans.py")


def test_labels_of_almanac_are_judged_as_recorded(judging: Any) -> None:
    lab, labels = embedded(), dl.almanac.labels("2wikimultihopqa", "dev", 12)
    spans = judging.read_labels(labels, lab.template("wo-rag"))
    words = [text[a:b] for text, a, b in zip(spans.text, spans.start, spans.end, strict=True)]
    assert words == [fact.value for one in labels for fact in one.facts]
    mixed = spans.sample(frac=1, random_state=0)  # the spans of a text need not stand together
    scored = judging.judge_spans(lab, mixed, list(RECORDED))
    assert scored["text"].equals(mixed["text"])
    rates = judging.rate_triggers(scored, list(RECORDED)).set_index("trigger").loc[list(RECORDED)]
    np.testing.assert_allclose(rates.to_numpy(float), list(RECORDED.values()), atol=1e-4)
    curves = judging.draw_roc(scored, list(RECORDED)).data
    areas = [float(np.trapezoid(curve.y, curve.x)) for curve in curves]
    assert areas == pytest.approx([area for area, _ in RECORDED.values()], abs=1e-4)


def test_a_span_is_found_in_a_text_that_a_tokenizer_gives_back_without_its_space(
    judging: Any,
) -> None:
    draft = SimpleNamespace(text="It is Bo.", offsets=np.array([(0, 2), (2, 5), (5, 8), (8, 9)]))
    assert judging.find_tokens(draft, "  It is Bo.", 8, 10).tolist() == [2]
    assert judging.find_tokens(draft, "It is Bo.", 1, 4).tolist() == [0, 1]
    with pytest.raises(ValueError, match="normalise it"):
        judging.find_tokens(draft, "It is B\u00f6.", 6, 8)


def test_a_trigger_fitted_on_labelled_text_tells_missing_facts_on_other_questions(
    judging: Any,
) -> None:
    lab, labels = embedded(), dl.almanac.labels("2wikimultihopqa", "dev", 24)
    taught, other = (
        judging.read_labels(some, lab.template("wo-rag")) for some in (labels[:16], labels[16:])
    )
    when = loaded("docs/examples/fitted_trigger.py").fit_trigger(lab, taught, "own-fitted")
    scored = judging.judge_spans(lab, other, ["own-fitted", "random"])
    areas = judging.rate_triggers(scored, ["own-fitted", "random"]).set_index("trigger")["area"]
    assert areas["own-fitted"] > max(0.8, areas["random"])
    trace = lab.ask(labels[0].question, when=when, threshold=0.01, max_new_tokens=32)
    assert trace.steps[0].decision is not None
    assert trace.steps[0].decision.retrieve
