"""Real questions over real passages, answered by SmolLM2-135M with every method, in both
variants and layouts.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from open_questions import QUESTIONS
from spacy.language import Language

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.core.method import METHODS, VARIANTS, Method
from dragin_lab.core.prompts import Exemplar
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import SettingError
from dragin_lab.retrieval.corpus import Corpus

pytestmark = pytest.mark.real

MARKS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
#: One method of each variant is part of every check, the others of `make real`.
FEW = {("dragin", "paper"), ("sr-rag", "reference")}


@pytest.fixture(scope="session")
def lab(smollm2: LanguageModel, corpus: Corpus, exemplars: list[Exemplar]) -> dl.Lab:
    return dl.Lab(smollm2, corpus=corpus, exemplars=exemplars, cache=True)


def make_methods() -> list[Any]:
    """Each method in each variant that it has."""
    cases = []
    for name, variant in product(METHODS, VARIANTS):
        try:
            method(name, variant=variant)
        except SettingError:
            continue
        marks = () if (name, variant) in FEW else pytest.mark.slow
        cases.append(pytest.param(name, variant, id=f"{name}-{variant}", marks=marks))
    return cases


@pytest.mark.parametrize(("name", "variant"), make_methods())
def test_every_method_answers_in_both_layouts(
    lab: dl.Lab, english: Language, name: str, variant: str
) -> None:
    asked = method(name, variant=variant, nlp=english, max_new_tokens=32)
    for question, layout in zip(QUESTIONS[1:3], ("dragin", "chat"), strict=True):
        assert_sound(lab.replace(layout=layout).ask(question, asked), asked)


def assert_sound(trace: dl.Trace, asked: Method) -> None:
    """The episode ended by itself, a search without passages is noted, and the answer holds no
    end mark.
    """
    assert trace.ended in ("answered", "length", "stalled")
    searches = [step for step in trace.steps if step.query is not None]
    # stop words find nothing
    assert all(step.passages or "found 0" in " ".join(step.notes) for step in searches)
    assert any(step.passages for step in searches) or asked.name != "sr-rag"
    assert not [mark for mark in MARKS if mark in trace.answer]
    if asked.variant == "paper":
        shown = [trace.text, *(step.query.text for step in searches)]
        assert not [mark for mark in MARKS for text in shown if mark in text]
    assert trace._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_side_by_side_gives_what_each_gives_alone(
    lab: dl.Lab, english: Language, variant: str
) -> None:
    asked = method("dragin", variant=variant, nlp=english, max_new_tokens=24)
    together = list(lab.replace(cache=False).ask_many(QUESTIONS[:4], asked, batch_size=4))
    assert len(together) == 4
    for trace in together:
        alone = lab.ask(trace.question.text, asked)
        assert (trace.text, trace.queries) == (alone.text, alone.queries)


@pytest.mark.slow
def test_entity_fires_on_a_real_entity(lab: dl.Lab, english: Language) -> None:
    asked = method("entity-rag", variant="paper", nlp=english, max_new_tokens=32)
    fired = []
    for question in QUESTIONS[:4]:
        for step in lab.ask(question, asked).steps:
            if step.decision is None or not step.decision.retrieve or step.decision.token is None:
                continue
            assert step.draft is not None
            start, stop = step.draft.offsets[step.decision.token]
            entities = [(e.start_char, e.end_char, e.text) for e in english(step.draft.text).ents]
            fired.append([text for a, b, text in entities if a < stop and start < b])
    assert fired
    assert all(fired), "it fired where the pipeline finds no entity"
