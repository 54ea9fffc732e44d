"""A method with other settings, and the method of a trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dragin_lab.catalog.by_name import TABLES, method, pick_settings, setting_names
from dragin_lab.checks import shown
from dragin_lab.core.fingerprint import digest
from dragin_lab.core.method import LOOP, METHODS, VARIANTS, Method
from dragin_lab.core.sentences import BY_LINES, load_pipeline
from dragin_lab.core.settings import Settings
from dragin_lab.errors import SettingError


def exchange_settings(old: Method, **settings: Any) -> Method:
    """The same method with other settings. Raises ``SettingError`` as ``method`` does."""
    before = old.changed | {
        "when": type(old.trigger),
        "what": type(old.formulator),
        "variant": old.variant,
        "nlp": old.pipeline,
    }
    if old.own_label:  # the new method is called otherwise
        label = old.own_label
        for key, value in settings.items():
            if value != old.settings.get(key):
                label += f" {key}={value}"
        before["label"] = re.sub(r"[^\w .=+-]+", "_", label)[:60].strip()
    return method(old.name, **merge_settings(before, old.name, settings))


def merge_settings(before: Mapping[str, Any], name: str, changes: Mapping[str, Any]) -> Settings:
    """``before`` with ``changes`` over it, both arguments of the method ``name``.

    A trigger or formulator among the changes brings its own settings: those that it states, and
    those of its kind where it is of another kind, as θ is on another scale there. ``top_n`` stays,
    as it means the same for all.
    """
    merged = dict(before)
    variant = changes.get("variant") or before.get("variant") or VARIANTS[0]
    for registry, usual in zip(TABLES[variant], METHODS[name], strict=True):
        given = changes.get(registry.kind)
        if given is None:
            continue
        part, stated = registry.read(given)
        old, _ = registry.read(before.get(registry.kind) or usual)
        gone = {*stated}
        if part is not old:
            gone |= {*setting_names(old)} - {"top_n"}
        for key in gone:
            merged.pop(key, None)
    return {**merged, **changes}


def restore_method(settings: Mapping[str, Any], nlp: Any = None) -> Method:
    """The method of a trace, from the settings recorded there (``Method.settings``).

    Raises ``SettingError`` where they are not a method's, where a custom trigger or formulator is
    not defined here or has changed since, or where ``nlp`` (None: the default) finds other
    sentences than the one recorded.
    """
    name = settings.get("name")
    lacks = [key for key in ("variant", "when", "what", *LOOP) if key not in settings]
    if lacks or not isinstance(name, str) or name not in METHODS:
        why = f"lacks the setting {lacks[0]!r}" if lacks else "is unknown"
        raise SettingError(
            f"the trace's method {shown(name)} {why}, so replay a trace of lab.ask instead"
        )
    recorded = (settings.get("pipeline") or "").removesuffix(BY_LINES) or None
    pipeline = load_pipeline(nlp, released=recorded == load_pipeline(released=True).name)
    if recorded not in (None, pipeline.name):
        raise SettingError(
            f"the trace's sentences were found by {recorded!r}, here by {pipeline.name!r}; give the"
            " first as nlp"
        )
    defined = settings.get("defined") or {}
    if "pipeline" in defined and defined["pipeline"] != digest(pipeline.described):
        raise SettingError(
            f"the trace's sentences were found by another {recorded!r} than here; give that as nlp"
        )
    parts: Settings = {}
    for registry in TABLES[settings["variant"]]:
        name = settings[registry.kind]
        if name not in registry:
            raise SettingError(
                f"the trace's {registry.noun} {name!r} is not defined here; "
                f"define it with @dl.{registry.kind} to replay the trace"
            )
        kind = registry.named(name)
        part = parts[registry.kind] = registry.make(kind, **pick_settings(kind, settings))
        now = part.fingerprint
        if defined.get(name, now) != now:
            raise SettingError(
                f"{registry.noun} {name!r} has changed since the trace was written; define it as it"
                " was to replay it"
            )
    for key in ("variant", *LOOP):
        parts[key] = settings[key]
    return method(settings["name"], nlp=pipeline, label=settings.get("label", ""), **parts)


def label_of(settings: Mapping[str, Any]) -> str:
    """What a method is called, from what a trace records of it (``Method.label``); its name where
    that is not known.

    That is where a part of it is not defined here, or was defined otherwise.
    """
    try:
        return restore_method({**settings, "pipeline": None}).label
    except SettingError:
        return str(settings.get("label") or settings.get("name", "unnamed"))
