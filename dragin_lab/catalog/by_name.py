"""Methods by name: a trigger and a query formulator put together, and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from dragin_lab.checks import choice, count, shown
from dragin_lab.core.dragin import DraginLoop
from dragin_lab.core.episode import Episode, Tokenizer
from dragin_lab.core.flare import SentenceLoop
from dragin_lab.core.formulators import FORMULATORS, Formulator, what
from dragin_lab.core.loop import BaseLoop, Loop
from dragin_lab.core.method import (
    LOOP,
    METHODS,
    VARIANTS,
    Method,
    check_label,
    default_top_k,
)
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.settings import MethodPart, Registry, Settings
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.core.when import when
from dragin_lab.errors import SettingError
from dragin_lab.reference import measures, released
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.call import Call

__all__ = ["METHODS", "VARIANTS", "method", "what", "when"]


#: Variant -> the tables in which its triggers and formulators are found by name.
TABLES: dict[str, tuple[Registry[Any], Registry[Any]]] = {
    "paper": (TRIGGERS, FORMULATORS),
    "reference": (released.TRIGGERS, released.FORMULATIONS),
}


def find_conflict(trigger: Trigger | type[Trigger], formulator: Any) -> str:
    """Why a trigger and a formulator make no sense together and what to use instead; "" where
    they do.
    """
    served = trigger.serves
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
    if variant == "reference" and name not in released.METHODS:
        raise SettingError(
            f"method {name!r} is not in the authors' released code, so it has no reference variant;"
            f" use variant='paper' or one of {', '.join(released.METHODS)}"
        )
    triggers, formulators = TABLES[variant]
    usual_when, usual_what = METHODS[name]
    when = usual_when if when is None else when
    what = usual_what if what is None else what
    trigger_class, _ = triggers.read(when)
    formulator_class, _ = formulators.read(what)
    _check_settings(trigger_class, formulator_class, settings, variant)
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
    trigger = triggers.make(when, **pick_settings(trigger_class, settings))
    formulator = formulators.make(what, **pick_settings(formulator_class, settings))
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


def pick_settings(part: type[MethodPart], settings: Mapping[str, Any]) -> Settings:
    """Those among ``settings`` that are a part's."""
    return {key: settings[key] for key in setting_names(part) if key in settings}


def _check_settings(
    trigger: type[MethodPart],
    formulator: type[MethodPart],
    settings: Mapping[str, Any],
    variant: str,
) -> None:
    """Raise ``SettingError`` for a setting that belongs to both parts, or to neither."""
    of_trigger = setting_names(trigger)
    of_formulator = setting_names(formulator)
    if both := set(of_trigger) & set(of_formulator):
        raise SettingError(
            f"trigger {trigger.name!r} and query formulator {formulator.name!r} both have a setting"
            f" {min(both)!r}; rename one of them"
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
            for table in TABLES[v]
            for n in table
            if key in setting_names(table.named(n))
        }
        if not having:
            choice("setting", key, (*of_trigger, *of_formulator, *LOOP))
        if value is not None:
            where = f"when={trigger.name!r} and what={formulator.name!r}"
            kind = f" of the {variant} variant" if having - {variant} else ""
            raise SettingError(f"{key}={value!r} has no meaning for {where}{kind}")


# -- how a method runs -----------------------------------------------------------------------------


def find_loop(method: Method) -> type[BaseLoop]:
    """The loop of a method."""
    if method.variant == "reference":
        return released.ReferenceLoop
    usual = SentenceLoop if method.trigger.span == "sentence" else DraginLoop
    return method.trigger.loop or usual


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
