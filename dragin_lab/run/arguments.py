"""Parse and check what ``Lab`` is made with and asked for, before anything is opened."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dragin_lab.catalog.by_name import exchange_settings
from dragin_lab.catalog.by_name import method as make_method
from dragin_lab.checks import EMBEDDED, choice, is_embedded, shown
from dragin_lab.core.method import METHODS, Method
from dragin_lab.core.prompts import LAYOUTS
from dragin_lab.errors import SettingError


def check_arguments(
    names: Iterable[str], given: Mapping[str, Any], layout: str | None, loading: Mapping[str, Any]
) -> None:
    """Raise ``SettingError`` for arguments of ``Lab`` that cannot be, alone or together; its ``names`` are those."""
    model, corpus, retriever, fields = (given[key] for key in ("model", "corpus", "retriever", "fields"))
    for key in loading:  # only now, as it brings torch
        choice("argument", key, (*names, *import_module("dragin_lab.engines.load").loading_arguments()))
    named = model is None or isinstance(model, str | Path)
    if not (named or hasattr(model, "write") or hasattr(model, "finish")):
        raise SettingError(f"model {shown(model)} is {type(model).__name__}; give a folder, an id or a LanguageModel")
    if loading and not named:
        raise SettingError(
            f"{', '.join(loading)}: only for a model given by name; {type(model).__name__} is loaded already"
        )
    if hasattr(model, "finish") and not (corpus is None and retriever is None):
        raise SettingError("a cluster searches its own passages; name them in its Recipe, and leave them out here")
    if layout is not None:
        choice("layout", layout, LAYOUTS)
    own = not (retriever is None or isinstance(retriever, str))
    if own and corpus is not None:
        raise SettingError("corpus and a retriever of your own: the retriever searches its own passages; give one")
    if fields is not None:
        corpora = import_module("dragin_lab.retrieval.corpus")  # only now, as reading traces does without
        if own or is_embedded(corpus) or isinstance(corpus, corpora.Corpus):
            raise SettingError(f"fields={shown(fields)} names the columns of a file or table; give one as corpus")


def check_needs(method: Method, lab: Any) -> None:
    """Raise ``SettingError`` where a method needs something that model or pipeline does not give."""
    model = lab.model
    if method.reads_attention and not getattr(model, "has_attention", True):
        free = [name for name in METHODS if not make_method(name).reads_attention]
        why = getattr(model, "no_attention", "")
        raise SettingError(
            f"method {method.name!r} looks at attention, and {model.name} has none; these need only probabilities: "
            f"{', '.join(free)}" + (f" ({why})" if why else "")
        )
    if method.trigger.hidden is not None and not getattr(model, "has_hidden", True):
        raise SettingError(
            f"trigger {method.trigger.name!r} reads hidden states, and {model.name} gives none; load the model in "
            "transformers for it"
        )
    if "entities" in method.trigger.needs:
        method.pipeline.require_entities()


def warn_of_almanac(model: Any, retriever: Any) -> None:
    """Warn of a model that is not Almanac's over Almanac's passages, which nobody named."""
    named = getattr(model, "recipe", None) is not None and model.recipe.corpus is not None
    if not (named or model.embedded) and retriever.provenance().get("corpus") == EMBEDDED:
        warnings.warn(
            f"{getattr(model, 'name', 'the model')} SEARCHES AN INVENTED WORLD: no passages were given, so it searches "
            "Almanac's; give your own as corpus (--corpus), or 'almanac' where that is meant",
            stacklevel=2,
        )


def as_method(given: Method | str, settings: Mapping[str, Any]) -> Method:
    """A method by name or as it is, with settings exchanged. Raises ``SettingError`` as ``dl.method``."""
    if isinstance(given, Method):
        return exchange_settings(given, **settings) if settings else given
    return make_method(given, **settings)
