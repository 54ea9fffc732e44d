"""Published settings by name: model x data set x source x method, from ``presets.csv``."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dragin_lab.catalog.by_name import method as make_method
from dragin_lab.catalog.exchanged import merge_settings
from dragin_lab.checks import check_text, choice
from dragin_lab.core.method import METHODS, Method
from dragin_lab.errors import SettingError

#: Where settings come from: the DRAGIN paper (Tables 3, 8, 9), its authors' released configurations
#: (reference-behaviour §5, §7, §9), and FLARE's own for 2WikiMultihopQA.
SOURCES = ("paper", "released", "flare")
_NUMBERS = ("threshold", "top_n", "n", "top_k", "doubt_limit", "max_new_tokens")


@dataclass(frozen=True)
class Preset:
    """One published setting: ``settings`` are arguments of ``dragin_lab.method``, ``shots`` its
    number of exemplars.

    ``model`` is "*" where the source gives one setting for all models; ``cited`` says where the
    values are published.
    """

    method: str
    model: str
    dataset: str
    source: str
    settings: dict[str, Any]
    shots: int
    cited: str


@cache
def presets() -> tuple[Preset, ...]:
    """All presets, in the order of the file."""
    published = []
    with Path(__file__).with_name("presets.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            settings = {"variant": row["variant"]} | {
                name: json.loads(row[name]) for name in _NUMBERS if row[name]
            }
            names = {name: row[name] for name in ("method", "model", "dataset", "source", "cited")}
            published.append(Preset(settings=settings, shots=int(row["shots"]), **names))
    return tuple(published)


def find_preset(
    model: str, dataset: str, *, source: str = "paper", method: str = "dragin"
) -> Preset:
    """The published setting of a method for a model and a data set.

    ``model`` is ``llama2-7b-chat``, ``llama2-13b-chat`` or ``vicuna-13b-v1.5``, or such a model's
    Hugging Face id; ``dataset`` one of the four benchmarks; ``source`` one of ``SOURCES``.

    Raises ``SettingError`` for names that do not exist, with the nearest, and for settings that a
    source does not give.
    """
    every = presets()
    models = dict.fromkeys(p.model for p in every if p.model != "*")
    model = choice("model", plain_name(model), models)
    dataset = check_text("dataset", dataset).lower()
    choice("data set", dataset, dict.fromkeys(p.dataset for p in every))
    choice("method", method, METHODS)
    choice("source", source, SOURCES)
    fitting = [
        p for p in every if (p.method, p.dataset) == (method, dataset) and p.model in (model, "*")
    ]
    for candidate in fitting:
        if candidate.source == source:
            return candidate
    others = " or ".join(f"source={p.source!r}" for p in fitting)
    raise SettingError(
        f"source={source!r} gives no settings of {method} for {dataset}; "
        + (
            f"use {others}"
            if others
            else f"none were published, so set them with method({method!r}, …)"
        )
    )


def preset(
    model: str, dataset: str, *, source: str = "paper", method: str = "dragin", **changes: Any
) -> Method:
    """The method with its published settings; see ``find_preset`` for names, errors and the number
    of exemplars.

    ``changes`` are arguments of ``dragin_lab.method`` that replace or add to them, such as
    ``what="current"``. A written form's settings replace them too, and another trigger than the
    method's own has its own default θ.
    """
    published = find_preset(model, dataset, source=source, method=method)
    return make_method(method, **merge_settings(published.settings, method, changes))


def plain_name(model: str) -> str:
    """A model's name as the presets write it: ``meta-llama/Llama-2-7b-chat-hf`` is
    ``llama2-7b-chat``.
    """
    return (
        check_text("model", model)
        .rstrip("/")
        .rpartition("/")[2]
        .lower()
        .removesuffix("-hf")
        .replace("llama-2", "llama2")
    )
