"""Methods by name: a trigger and a query formulator put together, exchanged, restored from a
trace, and run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from dragin_lab.checks import choice, count, shown
from dragin_lab.core.dragin import DraginLoop
from dragin_lab.core.episode import Episode, Tokenizer
from dragin_lab.core.fingerprint import digest
from dragin_lab.core.flare import SentenceLoop
from dragin_lab.core.formulators import FORMULATORS, Formulator, what
from dragin_lab.core.loop import BaseLoop, Loop
from dragin_lab.core.method import (
    LOOP,
    METHODS,
    PAPERS,
    VARIANTS,
    Method,
    check_label,
    default_top_k,
)
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import BY_LINES, load_pipeline
from dragin_lab.core.settings import Listed, MethodPart, Registry
from dragin_lab.core.trigger import TRIGGERS, Trigger, when
from dragin_lab.errors import SettingError
from dragin_lab.reference import measures, released
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.call import Call

__all__ = ["METHODS", "PAPERS", "VARIANTS", "method", "methods", "what", "when"]


_CLOSED = (
    "variant='reference' runs the authors' released code, which has nothing but its own triggers"
    " and queries; use variant='paper' for any other"
)
#: Variant -> the tables of its triggers and formulators, and its methods.
_TABLES: dict[str, tuple[Registry[Any], Registry[Any]]] = {
    "paper": (TRIGGERS, FORMULATORS),
    "reference": (
        Registry("when", Trigger, released.TRIGGERS, closed=_CLOSED),
        Registry("what", released.Formulation, released.FORMULATIONS, closed=_CLOSED),
    ),
}
_METHODS: dict[str, tuple[str, ...]] = {"paper": tuple(METHODS), "reference": released.METHODS}


def tables(variant: str) -> tuple[tuple[str, Registry[Any]], tuple[str, Registry[Any]]]:
    """The tables in which a variant's triggers and formulators are found by name, each after its
    ``kind``.
    """
    triggers, formulators = _TABLES[variant]
    return (triggers.kind, triggers), (formulators.kind, formulators)


def find_conflict(trigger: Trigger | type[Trigger], formulator: Any) -> str:
    """Why a trigger and a formulator make no sense together and what to use instead; "" where
    they do.
    """
    served = trigger.serves()
    if formulator.needs <= served:
        return ""
    if "text" not in served:
        remedy = (
            "nothing is written before the only search; use what='question', or a trigger that"
            " looks at text"
        )
    else:
        asking = ", ".join(
            repr(n) for n in TRIGGERS if issubclass(TRIGGERS.named(n), Call) and n != Call.name
        )
        remedy = (
            f"the model asks for something only with when={asking} or a dl.Call; use one, or"
            " another what"
        )
    return f"when={trigger.name!r} with what={formulator.name!r} makes no sense: {remedy}"


def method(
    name: str = "dragin",
    *,
    variant: str = "paper",
    when: str | Trigger | type[Trigger] | None = None,
    what: str | Formulator | type[Formulator] | None = None,
    max_new_tokens: int | None = None,
    top_k: int | None = None,
    nlp: Any = None,
    label: str = "",
    **settings: Any,
) -> Method:
    """A method by name, with any part or setting exchanged.

    ``name`` is a key of ``METHODS``; ``when`` and ``what`` replace its parts (the paper's Tables 4
    and 6): a name, a written form such as ``"margin(beta=2.0)@0.6"``, or what ``@dl.when`` and
    ``@dl.what`` made. ``settings`` are those of the trigger and the formulator, such as
    ``threshold`` or ``top_n``; ``dl.methods("when")`` and ``dl.methods("what")`` list them. They
    replace what a written form states. ``variant="paper"`` is the papers' equations,
    ``"reference"`` the authors' released code to the letter, for its own methods, with its own
    settings (docs/reference-behaviour.md). ``max_new_tokens`` bounds a draft and the answer
    (default 64; more where the model asks by itself). ``top_k`` is the number of passages per
    retrieval (default 3; 2 for the paper variant of ``flare``). ``nlp`` is any spaCy pipeline that
    finds sentences. ``label`` is what tables and run folders call it, such as ``"mine"``.

    ``lab.budget(questions, 1.5)`` finds the ``threshold`` at which a method retrieves so often a
    question.

    Raises ``SettingError`` for names that do not exist, values out of range, and parts that make no
    sense together.
    """
    choice("method", name, METHODS)
    choice("variant", variant, VARIANTS)
    if name not in _METHODS[variant]:
        raise SettingError(
            f"method {name!r} is not in the authors' released code, so it has no reference variant;"
            f" use variant='paper' or one of {', '.join(_METHODS[variant])}"
        )
    (triggers, formulators), usual = _TABLES[variant], METHODS[name]
    when, what = usual[0] if when is None else when, usual[1] if what is None else what
    (trigger_class, _), (formulator_class, _) = triggers.read(when), formulators.read(what)
    _check_settings(trigger_class, formulator_class, settings, variant)
    of_trigger = {
        key: value for key, value in settings.items() if key in setting_names(trigger_class)
    }
    of_formulator = {
        key: value for key, value in settings.items() if key in setting_names(formulator_class)
    }
    if variant == "paper" and issubclass(trigger_class, measures.Reader):
        raise SettingError(
            f"when={trigger_class.name!r} is of the released code; use variant='reference' with it"
        )
    loop = trigger_class.loop
    if not (loop is None or (isinstance(loop, type) and issubclass(loop, Loop))):
        raise SettingError(
            f"loop={shown(loop)} of when={trigger_class.name!r} is no loop; give a subclass of"
            " dl.Loop, or None for look-ahead: it writes until the trigger fires, retrieves and"
            " resumes"
        )
    trigger, formulator = triggers.make(when, **of_trigger), formulators.make(what, **of_formulator)
    if message := find_conflict(trigger, formulator):
        raise SettingError(message)
    if "threshold" in setting_names(trigger_class) and trigger.theta is None:
        raise SettingError(
            f"trigger {trigger.name!r} needs a threshold, such as {trigger.name}@0.6"
        )
    return Method(
        name=name,
        variant=variant,
        trigger=trigger,
        formulator=formulator,
        max_new_tokens=count(
            "max_new_tokens", trigger.length if max_new_tokens is None else max_new_tokens
        ),
        top_k=count("top_k", default_top_k(name, variant) if top_k is None else top_k),
        pipeline=load_pipeline(nlp, released=variant == "reference").by_lines(
            trigger.unit == "step"
        ),
        own_label=check_label(label, name) if label else "",
    )


def setting_names(part: type[MethodPart]) -> tuple[str, ...]:
    """The names of a part's settings."""
    return tuple(f.name for f in fields(part))


def _check_settings(
    trigger: type[MethodPart],
    formulator: type[MethodPart],
    settings: Mapping[str, Any],
    variant: str,
) -> None:
    """Raise ``SettingError`` for a setting that belongs to both parts, or to neither."""
    of_trigger, of_formulator = setting_names(trigger), setting_names(formulator)
    if both := set(of_trigger) & set(of_formulator):
        raise SettingError(
            f"trigger {trigger.name!r} and query formulator {formulator.name!r} both have a setting"
            f" {sorted(both)[0]!r}; rename one of them"
        )
    for key, value in settings.items():
        if key in of_trigger or key in of_formulator:
            continue
        # how much a query holds may stay in a preset while the formulator is exchanged
        if key == "top_n":
            count(key, 1 if value is None else value)
            continue
        having = {
            v
            for v in VARIANTS
            for table in _TABLES[v]
            for n in table
            if key in setting_names(table.named(n))
        }
        if not having:
            choice("setting", key, (*of_trigger, *of_formulator, *LOOP))
        if value is not None:
            where = f"when={trigger.name!r} and what={formulator.name!r}"
            kind = f" of the {variant} variant" if having - {variant} else ""
            raise SettingError(f"{key}={value!r} has no meaning for {where}{kind}")


def methods(of: str = "method") -> list[Listed]:
    """Every method, with the settings of its trigger and its formulator (DRAGIN, Table 1).

    ``of="when"`` gives every trigger and ``"what"`` every query formulator, your own among them.
    """
    if choice("of", of, ("method", "when", "what")) != "method":
        return (TRIGGERS if of == "when" else FORMULATORS).listing()
    parts = (
        (name, TRIGGERS.named(when), FORMULATORS.named(what))
        for name, (when, what) in METHODS.items()
    )
    return [
        Listed(name, t.defaults() | f.defaults(), t.source, f"{t.name} x {f.name}")
        for name, t, f in parts
    ]


# -- other settings, and a trace's -----------------------------------------------------------------


def exchange_settings(old: Method, **settings: Any) -> Method:
    """The same method with other settings. Raises ``SettingError`` as ``method`` does."""
    before = dict(old.changed)
    before["when"], before["what"] = type(old.trigger), type(old.formulator)
    before["variant"], before["nlp"] = old.variant, old.pipeline
    if old.own_label:  # the new method is called otherwise
        label = old.own_label
        for key, value in settings.items():
            if value != old.settings.get(key):
                label += f" {key}={value}"
        before["label"] = re.sub(r"[^\w .=+-]+", "_", label)[:60].strip()
    return method(old.name, **merge_settings(before, old.name, settings))


def merge_settings(
    before: Mapping[str, Any], name: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """``before`` with ``changes`` over it, both arguments of the method ``name``.

    A trigger or formulator among the changes brings its own settings: those that it states, and
    those of its kind where it is of another kind, as θ is on another scale there. ``top_n`` stays,
    as it means the same for all.
    """
    merged = dict(before)
    variant = changes.get("variant") or before.get("variant") or VARIANTS[0]
    for (kind, registry), usual in zip(tables(variant), METHODS[name], strict=True):
        if changes.get(kind) is None:
            continue
        part, stated = registry.read(changes[kind])
        old, _ = registry.read(before.get(kind) or usual)
        gone = {*stated}
        if part is not old:
            gone |= {*setting_names(old)} - {"top_n"}
        for key in gone & merged.keys():
            del merged[key]
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
    parts: dict[str, Any] = {}
    for kind, registry in tables(settings["variant"]):
        name = settings[kind]
        if name not in registry:
            raise SettingError(
                f"the trace's {registry.noun} {name!r} is not defined here; "
                f"define it with @dl.{kind} to replay the trace"
            )
        part = registry.named(name)
        recorded_settings = {key: settings[key] for key in setting_names(part) if key in settings}
        parts[kind] = registry.make(part, **recorded_settings)
        then = defined.get(name)
        if then is not None and then != parts[kind].fingerprint:
            raise SettingError(
                f"{registry.noun} {name!r} has changed since the trace was written; define it as it"
                " was to replay it"
            )
    loop = {key: settings[key] for key in LOOP if key in settings}
    label = settings.get("label", "")
    return method(
        settings["name"], variant=settings["variant"], nlp=pipeline, label=label, **parts, **loop
    )


def label_of(settings: Mapping[str, Any]) -> str:
    """What a method is called, from what a trace records of it (``Method.label``); its name where
    that is not known.

    That is where a part of it is not defined here, or was defined otherwise.
    """
    try:
        return restore_method({**settings, "pipeline": None}).label
    except SettingError:
        return str(settings.get("label") or settings.get("name", "unnamed"))


# -- how a method runs -----------------------------------------------------------------------------


def find_loop(method: Method) -> type[BaseLoop]:
    """The loop of a method."""
    if method.variant == "reference":
        return released.ReferenceLoop
    own: type[BaseLoop] | None = method.trigger.loop
    return own or (SentenceLoop if method.trigger.span == "sentence" else DraginLoop)


def start_episode(
    method: Method,
    trace: Trace,
    template: PromptTemplate,
    tokenizer: Tokenizer,
    *,
    window: int | None = None,
) -> Episode[None]:
    """The generator that answers ``trace.question`` and records itself in ``trace`` as it goes.

    ``window`` is the model's context length in tokens; None where it has no limit. Raises
    ``SettingError`` for a template in the chat layout where the tokenizer has no chat template.
    """
    bound = replace(template, form=method.trigger.form).bound(tokenizer)
    return run_loop(find_loop(method)(method, trace, bound, tokenizer, window))


def run_loop(loop: BaseLoop) -> Episode[None]:
    """A loop's turns, and after them how it ended and the answer."""
    yield from loop.run()
    if loop.trace.ended == "running":
        loop.trace.ended = "stalled"
        loop.trace.notes.append(f"{type(loop).__name__} did not say how the episode ended")
    yield from loop.finish()
