"""The examples of docs/examples run, and say what they say they do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from answering import embedded
from factories import ELM_ROAD, make_episode
from scripted import Say, ScriptedModel
from scripts import ROOT, loaded

import dragin_lab as dl
from dragin_lab.almanac.facts import Fact

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


@pytest.fixture(scope="module")
def needing() -> Any:
    return loaded("docs/examples/when_was_it_needed.py")


DIRECTOR, YEAR = ELM_ROAD.facts
TOWN = replace(YEAR, relation="birthplace", value="Elmouth")
COUNTRY = replace(YEAR, subject="Elmouth", relation="country", value="Dorvia")
MAYOR = replace(YEAR, subject="Elmouth", relation="mayor", value="Max Malthorn")


@pytest.mark.parametrize(
    ("text", "fact", "value"),
    [
        ("Elm Road was directed by Ada Orleth.", DIRECTOR, "Ada Orleth"),
        ("Here, the film  Elm Road was directed by Max Orleth. It", DIRECTOR, "Max Orleth"),
        ("Elm Street is a film by Ada Orleth.", DIRECTOR, None),
        ("Clearly, Ada Orleth was born in 1939.", YEAR, "1939"),
        ("Ada Orleth was born in the town of Elmouth.", YEAR, None),
        ("Ada Orleth was born in the year 1938. Ada Orleth was born at Elmouth.", TOWN, "Elmouth"),
        ("The town of Elmouth lies in Dorvia.", COUNTRY, "Dorvia"),
        ("Elmouth has Max Malthorn as its mayor.", MAYOR, "Max Malthorn"),
        ("", YEAR, None),
    ],
)
def test_the_value_of_a_fact_is_found_in_a_text(
    needing: Any, text: str, fact: Fact, value: str | None
) -> None:
    span = needing.find_value(text, fact)
    assert (None if span is None else text[slice(*span)]) == value


def test_a_retrieval_was_needed_where_a_missing_fact_stood_in_no_passage(needing: Any) -> None:
    """The director is known, the year is not: it has to be looked up after the director."""
    year = dl.Passage(YEAR.passage, "Ada Orleth", "Ada Orleth was born in 1938.")
    other = replace(year, id="other")
    director, born = " Elm Road was directed by Ada Orleth.", " Ada Orleth was born in 1938."

    def judge(*written: Any) -> list[str]:
        """A word for each fact: its columns that are true."""
        rows = needing.find_needs(make_episode(ELM_ROAD.question, *written), ELM_ROAD)
        columns = ["needed", "retrieved", "found", "right"]
        return [" ".join(rows.columns[2:][row]) for row in rows[columns].to_numpy(bool)]

    assert judge((director, None), (born, None)) == ["right", "needed right"]
    looked_up = judge((director, None), (born, (year,)))
    assert looked_up == ["right", "needed retrieved found right"]
    assert judge((director, None), (born, (other,))) == ["right", "needed retrieved right"]
    assert judge((director, (year,)), (born, None)) == ["retrieved right", "right"]
    wrong = born.replace("1938", "1939")
    assert judge((director, None), (wrong, None)) == ["right", "needed"]
    lost = director.replace("Ada", "Bo")
    assert judge((lost, None), (born, None)) == [""]


def test_retrievals_are_rated_by_what_was_needed(needing: Any) -> None:
    rows = pd.DataFrame({"needed": [True] * 3 + [False], "retrieved": [True, False, False, True]})
    assert needing.rate_retrievals(rows).to_dict() == pytest.approx(
        {"needed": 3, "recall": 1 / 3, "precision": 1 / 2}
    )
    assert np.isnan(needing.rate_retrievals(rows[:0])[["recall", "precision"]]).all()
