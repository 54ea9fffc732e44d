"""Ground truth of *when*: labels, scores, and facts in free text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spacy
from factories import ELM_ROAD
from scripted import ScriptedRetriever

import dragin_lab as dl
from dragin_lab.almanac.facts import Fact
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.engines.load import LanguageModel
from dragin_lab.study.spans import score_tokens
from dragin_lab.study.truth import find_facts

MODEL = Path(__file__).parents[1] / "parity" / "models" / "almanac-prototype"
#: The shipped triggers that score tokens by what is captured by default, with a pipeline that finds no entities.
REGISTERED = ("probability", "rind", "entropy-trend", "entropy", "margin", "random")


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return LanguageModel.load(MODEL)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return load_pipeline()


@pytest.fixture(scope="module")
def template() -> PromptTemplate:
    return PromptTemplate()


# -- scores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "variant", "trigger"), [("dragin", "paper", "rind"), ("flare", "paper", "probability")]
)
def test_scores_are_those_of_the_methods(
    lm: LanguageModel, pipeline: Pipeline, method: str, variant: str, trigger: str
) -> None:
    """What a real episode held against its θ is what is ranked here: a word's score is its tokens' largest."""
    theta = 1e6 if method == "dragin" else 1.0
    chosen = dl.method(method, variant=variant, threshold=theta)
    trace = dl.Lab(lm, retriever=ScriptedRetriever(), exemplars=PromptTemplate()).ask(
        "Who is the mother of the director of Elm Road?", chosen
    )
    step = next(s for s in trace.steps if s.draft is not None)
    assert step.draft is not None
    scores = score_tokens(step.draft, pipeline)[trigger]
    spans, expected = step.words.spans, step.words.score
    assert len(spans) > 5
    np.testing.assert_allclose([scores[a:b].max() for a, b in spans], expected, rtol=1e-4, atol=1e-6)


def test_entities_are_scored_where_the_pipeline_finds_any(lm: LanguageModel, template: PromptTemplate) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ada"}])  # type: ignore[attr-defined]
    made = lm.score(template.render("Who?"), " Ada was born in 1938.")
    scores = score_tokens(made, load_pipeline(nlp))
    scored = "".join(made.text[a:b] for a, b in made.offsets[scores["entity"] > 0])
    assert scored.strip() == "Ada"


def test_scores_of_the_other_triggers(lm: LanguageModel, pipeline: Pipeline, template: PromptTemplate) -> None:
    made = lm.score(template.render("Who?"), " Ada was born in 1938. She lived at Elmouth for some years. She left.")
    scores = score_tokens(made, pipeline)
    assert set(scores) >= {*REGISTERED}  # and custom ones of other tests
    margins = made.alternative_probs[:, 1].astype(float) / made.alternative_probs[:, 0]
    np.testing.assert_allclose(scores["margin"], margins)
    np.testing.assert_allclose(scores["entropy"], made.entropy)
    np.testing.assert_allclose(scores["probability"], doubts(made.logprob))
    # RIND is attention times entropy, word by word; without doubt about a word nothing is left of it.
    sure = scores["entropy"] == 0
    assert (scores["rind"][sure] == 0).all()


def test_a_span_has_the_largest_score_of_its_tokens(lm: LanguageModel) -> None:
    one, template = ELM_ROAD, PromptTemplate()
    judged = dl.Lab(lm, retriever=ScriptedRetriever()).judge(dl.Spans.of_labels([one], template)).frame
    made = lm.score(template.render(one.question), f" {one.reasoning} So the answer is {one.answer}.")
    for (_, row), gold in zip(judged.iterrows(), one.facts, strict=True):
        place = made.text.index(gold.value)
        value = [i for i, (a, b) in enumerate(made.offsets) if a < place + len(gold.value) and b > place]
        assert (row["words"], row["missing"]) == (gold.value, gold.missing)
        assert row["entropy"] == pytest.approx(made.entropy[value].max())
        assert row["probability"] == pytest.approx(doubts(made.logprob)[value].max())


# -- facts in a text ------------------------------------------------------------------------------------------

FILM = DIRECTOR, YEAR = ELM_ROAD.facts
TOWN = replace(YEAR, relation="birthplace", value="Elmouth")
COUNTRY = replace(YEAR, subject="Elmouth", relation="country", value="Dorvia")
MAYOR = replace(YEAR, subject="Elmouth", relation="mayor", value="Max Malthorn")


@pytest.mark.parametrize(
    ("text", "facts", "values", "end"),
    [
        ("Elm Road was directed by Ada Orleth. Ada Orleth was born in 1938.", FILM, "++", "all right"),
        ("Elm Road is a film by Ada Orleth. Clearly, Ada Orleth was born in 1939.", FILM, "+-", "first wrong"),
        ("Here, the film  Elm Road was directed by Max Orleth. Max Orleth was born in 1938.", FILM, "-", "first wrong"),
        ("Elm Street is a film by Ada Orleth.", (DIRECTOR,), "", "lost"),
        ("Ada Orleth was born in the town of Elmouth.", (YEAR,), "", "lost"),
        ("Ada Orleth was born in the year 1938. Ada Orleth was born at Elmouth.", (TOWN,), "+", "all right"),
        ("The town of Elmouth lies in Dorvia.", (COUNTRY,), "+", "all right"),
        ("Elmouth has Max Malthorn as its mayor.", (MAYOR,), "+", "all right"),
        ("Elmouth is led by the mayor Max Dorn.", (MAYOR,), "-", "first wrong"),
        ("", (YEAR,), "", "lost"),
    ],
)
def test_facts_are_found_in_text(text: str, facts: tuple[Fact, ...], values: str, end: str) -> None:
    found, ended = find_facts(text, facts)
    assert "".join("+" if one.right else "-" for one in found) == values
    assert ended == end
    for one in found:
        assert (text[one.start : one.end] == one.fact.value) == one.right
        assert "the" not in text[one.start : one.end].split()
