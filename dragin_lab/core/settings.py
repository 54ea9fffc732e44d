"""A method's settings apart from its defaults: what to call it, and the same method with one of them exchanged."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from dragin_lab.core.method import METHODS, Method, method
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.errors import SettingError

#: Every setting that ``methods.method`` takes by name and that a label can show.
_NAMES = tuple(name for name in inspect.signature(method).parameters if name not in ("name", "variant", "nlp"))


def changed(found: Method) -> dict[str, Any]:
    """The arguments that make the method out of its name and variant: what is not there by default.

    What follows from another setting is not listed (the reference FLARE's ``doubt_limit`` follows its threshold), so
    that it still follows when that one is exchanged.
    """
    given = {key: getattr(found, key) for key in ("when", "what")}
    given = {k: v for (k, v), own in zip(given.items(), METHODS[found.name], strict=True) if v != own}
    for key in _NAMES:
        value = getattr(found, key)
        if value != getattr(method(found.name, variant=found.variant, **given, nlp=found.pipeline), key):
            given[key] = value
    return given


def exchanged(found: Method, **settings: Any) -> Method:
    """The same method with other settings. Raises ``SettingError`` as ``method`` does."""
    return method(found.name, variant=found.variant, **changed(found) | settings, nlp=found.pipeline)


def label(found: Method) -> str:
    """A short name that tells methods apart and fits into a path: "dragin", "dragin-paper-threshold=0.8"."""
    parts = [found.name] + [found.variant] * (found.variant != "reference")
    return "-".join(parts + [f"{key}={value}" for key, value in changed(found).items()])


def run_label(found: Method, retriever: str | None = None) -> str:
    """``label``, and behind it the retriever that was asked for by name, where it is not plain BM25 and is searched."""
    if retriever in (None, "bm25") or found.when == "never":
        return label(found)
    assert retriever is not None
    kind, _, address = without_secrets(retriever).partition(":")
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", address.rstrip("/").rpartition("/")[2]).strip("-")
    return "-".join([label(found), kind] + [short] * bool(short))


def restored(settings: Mapping[str, Any], nlp: Any = None) -> Method:
    """The method of a trace, from the settings recorded there (``Method.settings``).

    Raises ``SettingError`` where they are no method's, or where ``nlp`` (None: the default) is another pipeline than
    the one recorded, as other sentences and stop words are other decisions.
    """
    own = [f for f in fields(Method) if f.name != "pipeline"]
    missing = [f.name for f in own if f.name not in settings and f.default is MISSING]
    if missing or settings["name"] not in METHODS:
        what = f"has no {missing[0]!r}" if missing else f"is called {settings['name']!r}"
        raise SettingError(f"the trace's method {what}, so it is none of dragin_lab's; take a trace of dl.ask")
    pipeline, recorded = load_pipeline(nlp), settings.get("pipeline")
    if recorded not in (None, pipeline.name):
        raise SettingError(
            f"the trace's sentences were found by {recorded!r}, here by {pipeline.name!r}; give the first as nlp"
        )
    return Method(**{f.name: settings[f.name] for f in own if f.name in settings}, pipeline=pipeline)


def without_secrets(address: str) -> str:
    """An address without the user and password in it, for messages, records and paths."""
    return re.sub(r"//[^/]*@", "//", address)
