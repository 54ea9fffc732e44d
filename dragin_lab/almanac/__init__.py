"""Almanac: the embedded world. Its model, passages and exemplars, found without torch."""

from __future__ import annotations

import json
from pathlib import Path

from dragin_lab.core.prompts import Exemplar

#: Worked examples in the embedded model's default prompt. The paper uses 6 to 8; this model was trained on 0 to 2.
DEFAULT_EXEMPLARS = 2


def embedded_model_path() -> Path:
    """The folder of the embedded model, for ``transformers``."""
    return Path(__file__).parent / "model"


def embedded_corpus_path() -> Path:
    """The file of the embedded passages; outside a checkout unpacked once, into the user's cache."""
    from dragin_lab.almanac.files import almanac_folder

    return almanac_folder() / "psgs_w100.tsv"


def default_exemplars(form: str = "reasoning") -> tuple[Exemplar, ...]:
    """The worked examples that stand in the embedded model's prompts, in a form of answers (``forms.FORMS``)."""
    from dragin_lab.almanac.files import almanac_folder

    name = {"reasoning": "2wikimultihopqa", "search": "flare-instruct", "self-ask": "self-ask"}[form]
    rows = json.loads((almanac_folder() / "exemplars" / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(Exemplar(**row) for row in rows[:DEFAULT_EXEMPLARS])
