"""Almanac: the embedded world. Its model, passages, questions, labels and exemplars, read without torch."""

from __future__ import annotations

from pathlib import Path

from dragin_lab.almanac.world import AlmanacError, exemplars, labels, passages, questions, wordings
from dragin_lab.checks import choice
from dragin_lab.core.prompts import Exemplar

__all__ = [
    "DEFAULT_EXEMPLARS",
    "AlmanacError",
    "default_exemplars",
    "embedded_model_path",
    "exemplars",
    "labels",
    "passages",
    "questions",
    "wordings",
]

#: Worked examples in the embedded model's default prompt. The paper uses 6 to 8; this model was trained on 0 to 2.
DEFAULT_EXEMPLARS = 2


def embedded_model_path() -> Path:
    """The folder of the embedded model, for ``transformers``."""
    return Path(__file__).parent / "model"


def default_exemplars(form: str = "reasoning") -> tuple[Exemplar, ...]:
    """The worked examples that stand in the embedded model's prompts, in a form of answers (``forms.FORMS``)."""
    sets = {"reasoning": "2wikimultihopqa", "search": "flare-instruct", "self-ask": "self-ask"}
    return exemplars(sets[choice("form", form, sets)])[:DEFAULT_EXEMPLARS]
