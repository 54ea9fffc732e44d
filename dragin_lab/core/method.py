"""The methods: each is a *when* x a *what*, with the few settings of the loop (DRAGIN, Table 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

from dragin_lab.catalog.budget import Budget, Calibrated, Calibration
from dragin_lab.checks import choice, count
from dragin_lab.core.formulators import FORMULATORS, Formulator
from dragin_lab.core.parts import Entry, Registry
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.core.triggers import Clock
from dragin_lab.errors import SettingError
from dragin_lab.text import without_secrets
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.call import Call

VARIANTS = ("reference", "paper")
#: The paper's methods (Table 1), and two of the FLARE paper's (Prompts D.2, D.3): name -> (when, what).
PAPERS = {
    "wo-rag": ("never", "question"),
    "sr-rag": ("once", "question"),
    "fl-rag": ("every-n", "last-n"),
    "fs-rag": ("every-sentence", "last-sentence"),
    "flare": ("probability", "confident-sentence"),
    "dragin": ("rind", "qfs"),
    "flare-instruct": ("search-call", "term"),
    "self-ask": ("follow-up", "term"),
}
#: Those, and what came after.
METHODS = PAPERS | {
    "search-r1": ("search-tag", "term"),
    "etc": ("entropy-trend", "qfs-etc"),
    "targ": ("prefix-margin", "question"),
    "entity-rag": ("entity", "current-without-hits"),
}
#: Passages per retrieval; the FLARE paper's own loop takes two.
_TOP_K, _TOP_KS = 3, {("flare", "paper"): 2}
_LONGEST = 60  # characters of a setting in a label
#: Settings of the loop, which every method has.
LOOP = ("max_new_tokens", "top_k")


@dataclass(frozen=True)
class Method:
    """One method with every setting; make it with ``dragin_lab.method``. Immutable, comparable, hashable."""

    name: str
    variant: str
    trigger: Trigger
    formulator: Formulator
    max_new_tokens: int  # bounds a draft, and the answer
    top_k: int  # passages per retrieval
    pipeline: Pipeline = field(default_factory=load_pipeline)
    calibrated: Calibrated | None = field(default=None, compare=False)  # where θ is from, if from a budget

    @property
    def settings(self) -> dict[str, Any]:
        """Everything a trace records about the method, as plain data."""
        loop = {"name": self.name, "variant": self.variant, "when": self.trigger.name, "what": self.formulator.name}
        loop |= {key: getattr(self, key) for key in LOOP} | {"threshold": self.threshold}
        loop |= {"measure": self.trigger.measure, "unit": self.trigger.unit_in(self.variant)}
        own = {part.name: part.fingerprint for part in (self.trigger, self.formulator) if part.fingerprint}
        parts = self.trigger.settings | self.formulator.settings
        found = {"calibrated": self.calibrated.record} if self.calibrated is not None else {}
        return loop | parts | ({"defined": own} if own else {}) | {"pipeline": self.pipeline.name} | found

    @property
    def threshold(self) -> float | None:
        """θ; None for a trigger without a threshold."""
        return self.trigger.theta

    @property
    def top_n(self) -> int | None:
        """How many words or tokens a query has; None for a formulator without such a setting."""
        found: int | None = getattr(self.formulator, "top_n", None)
        return found

    @property
    def form(self) -> str:
        """The form in which the model is to write its answer (``forms.FORMS``)."""
        return self.trigger.form

    @property
    def retrieves(self) -> bool:
        """Whether it ever searches."""
        return not (isinstance(self.trigger, Clock) and self.trigger.searches == "never")

    @property
    def query_tokens(self) -> int | None:
        """A query is cut to its last tokens: 64 in DRAGIN's released code (reference-behaviour §4)."""
        return self.trigger.query_tokens if self.variant == "reference" else None

    @property
    def keeps_attention(self) -> bool:
        """Whether the paper variant keeps the attention rows of its drafts."""
        return self.formulator.reads_attention or "attention" in self.trigger.needs

    @property
    def reads_attention(self) -> bool:
        """Whether it needs a model with attention; other methods need only probabilities."""
        return self.keeps_attention or self.trigger.rereads

    def __str__(self) -> str:
        return label(self)


def senseless(when: Trigger | type[Trigger], what: Formulator | type[Formulator]) -> str:
    """Why a trigger and a formulator make no sense together and what to use instead; "" where they do."""
    if what.needs <= when.gives:
        return ""
    if "text" not in when.gives:
        remedy = "nothing is written before the only search; use what='question', or a trigger that looks at text"
    else:
        asking = ", ".join(repr(n) for n in TRIGGERS.names() if issubclass(TRIGGERS.named(n), Call) and n != Call.name)
        remedy = f"the model asks for something only with when={asking} or a dl.Call; use one, or another what"
    return f"when={when.name!r} with what={what.name!r} makes no sense: {remedy}"


def method(
    name: str = "dragin",
    *,
    variant: str = "reference",
    when: str | Trigger | type[Trigger] | None = None,
    what: str | Formulator | type[Formulator] | None = None,
    max_new_tokens: int | None = None,
    top_k: int | None = None,
    nlp: Any = None,
    calibration: Calibration | Iterable[Trace] | None = None,
    **settings: Any,
) -> Method:
    """A method by name, with any part or setting exchanged.

    ``name`` is a key of ``METHODS``; ``when`` and ``what`` replace its parts (the paper's Tables 4 and 6): a name, a
    written form such as ``"margin(first=20)@0.6"``, or what ``@dl.when`` and ``@dl.what`` made. ``settings`` are those
    of the when and the what, such as ``threshold`` or ``top_n``; ``dragin_lab.whens()`` and ``whats()`` list them.
    A setting may not contradict a written form.
    ``variant="reference"`` is the authors' released code to the letter (docs/reference-behaviour.md), ``"paper"`` the
    equations. ``max_new_tokens`` bounds a draft and the answer (default 64; more where the model asks by itself).
    ``top_k`` is the number of passages per retrieval (default 3; 2 for the paper variant of ``flare``). ``nlp`` is any
    spaCy pipeline that finds sentences.

    ``threshold`` may be a budget: ``"budget:1.5"`` retrievals per question, or ``"share:0.3"`` of the drafts. It is
    found on ``calibration``: what ``dl.calibration(lab, questions, method)`` gives, or traces of the method without a
    retrieval. What it was found on is recorded as ``calibrated``.

    Raises ``SettingError`` for names that do not exist, values out of range, parts that make no sense together, and a
    budget that cannot be reached, naming the nearest reachable one.
    """
    choice("method", name, METHODS)
    choice("variant", variant, VARIANTS)
    own_when, own_what = METHODS[name]
    when, what = own_when if when is None else when, own_what if what is None else what
    when_class, what_class = TRIGGERS.read(when)[0], FORMULATORS.read(what)[0]
    _check_settings(when_class, what_class, settings)
    made_when = TRIGGERS.make(when, **{k: v for k, v in settings.items() if k in setting_names(when_class)})
    made_what = FORMULATORS.make(what, **{k: v for k, v in settings.items() if k in setting_names(what_class)})
    if message := senseless(made_when, made_what):
        raise SettingError(message)
    made_when, calibrated = _calibrated(made_when, variant, calibration)
    made_when, made_what = made_when.resolved(variant), made_what.resolved(variant)
    return Method(
        name=name,
        variant=variant,
        trigger=made_when,
        formulator=made_what,
        max_new_tokens=count("max_new_tokens", made_when.length if max_new_tokens is None else max_new_tokens),
        top_k=count("top_k", _TOP_KS.get((name, variant), _TOP_K) if top_k is None else top_k),
        pipeline=load_pipeline(nlp),
        calibrated=calibrated,
    )


def _calibrated(
    when: Trigger, variant: str, calibration: Calibration | Iterable[Trace] | None
) -> tuple[Trigger, Calibrated | None]:
    """The when with the threshold that a budget asks for, and where that is from; as it is where it has a number."""
    asked = getattr(when, "threshold", None)
    if not (isinstance(asked, str) and ":" in asked):
        if calibration is not None:
            raise SettingError(f"calibration has no meaning for threshold={asked!r}; ask for a budget: 'budget:1.5'")
        return when, None
    budget = Budget.read(asked)
    if calibration is None:
        raise SettingError(
            f"threshold={asked!r} is found on a calibration set; give calibration=dl.calibration(lab, questions, …)"
        )
    held = calibration if isinstance(calibration, Calibration) else Calibration.of(calibration)
    plain = replace(when, threshold=0.0).resolved(variant)  # type: ignore[call-arg]
    theta, found = held.threshold(plain, variant, budget)
    return replace(when, threshold=theta), found  # type: ignore[call-arg]


def setting_names(part: type[Trigger] | type[Formulator]) -> tuple[str, ...]:
    """The names of a part's settings."""
    return tuple(f.name for f in fields(part))


def _check_settings(when: type[Trigger], what: type[Formulator], settings: Mapping[str, Any]) -> None:
    """Raise ``SettingError`` for a setting that belongs to both parts, or to neither."""
    of_when, of_what = setting_names(when), setting_names(what)
    if both := set(of_when) & set(of_what):
        raise SettingError(
            f"when {when.name!r} and what {what.name!r} both have a setting {sorted(both)[0]!r}; rename one of them"
        )
    for key, value in settings.items():
        if key in of_when or key in of_what:
            continue
        if not (TRIGGERS.any_has(key) or FORMULATORS.any_has(key)):
            choice("setting", key, (*of_when, *of_what, *LOOP))
        # How much a query holds may stay in a preset while the what is exchanged.
        if value is not None and key in ("top_n", "n"):
            count(key, value)
        elif value is not None:
            raise SettingError(f"{key}={value!r} has no meaning for when={when.name!r} and what={what.name!r}")


def whens() -> list[Entry]:
    """Every trigger: the built-in ones, your own, and those of installed packages."""
    return TRIGGERS.listing()


def whats() -> list[Entry]:
    """Every query formulator: the built-in ones, your own, and those of installed packages."""
    return FORMULATORS.listing()


def methods() -> list[Entry]:
    """Every method with the settings of its when and its what (DRAGIN, Table 1)."""
    return [
        Entry(
            name,
            TRIGGERS.settings_of(when) | FORMULATORS.settings_of(what),
            TRIGGERS.named(when).source,
            f"{when} x {what}",
        )
        for name, (when, what) in METHODS.items()
    ]


# -- what a method is called ------------------------------------------------------------------------------------------


def changed(found: Method) -> dict[str, Any]:
    """The arguments that make the method out of its name and variant: what is not there by default."""
    needed = _without_default(found)
    plain = method(
        found.name,
        variant=found.variant,
        when=type(found.trigger),
        what=type(found.formulator),
        nlp=found.pipeline,
        **needed,
    )
    before = plain.settings | dict(zip(("when", "what"), METHODS[found.name], strict=True))
    keys = ("when", "what", "threshold", *found.trigger.settings, *found.formulator.settings, *LOOP)
    return {key: found.settings[key] for key in keys if key in needed or found.settings[key] != before[key]}


def _without_default(found: Method) -> dict[str, Any]:
    """The settings that have to be given, such as θ of a trigger that has no default."""
    every = (*fields(found.trigger), *fields(found.formulator))
    names = [f.name for f in every if f.default is MISSING and f.default_factory is MISSING]
    if found.threshold is not None and found.trigger.default_threshold(found.variant) is None:
        names.append("threshold")
    return {name: found.settings[name] for name in names}


def exchanged(found: Method, **settings: Any) -> Method:
    """The same method with other settings. Raises ``SettingError`` as ``method`` does."""
    before = changed(found) | {"when": type(found.trigger), "what": type(found.formulator)}
    before |= {"variant": found.variant, "nlp": found.pipeline}
    made = method(found.name, **settings_beside(before, found.name, settings))
    return replace(made, calibrated=found.calibrated) if made.trigger == found.trigger else made


def settings_beside(before: Mapping[str, Any], name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """``before`` with ``changes`` over it, both arguments of the method ``name``.

    A trigger or formulator among the changes brings its own settings: those that it states, and those of its kind where
    it is of another kind, as θ is on another scale there. Only ``top_n`` stays, which means the same for all.
    """
    merged = dict(before)
    tables: tuple[tuple[str, Registry[Any]], ...] = (("when", TRIGGERS), ("what", FORMULATORS))
    for (kind, registry), own in zip(tables, METHODS[name], strict=True):
        if changes.get(kind) is None:
            continue
        part, stated = registry.read(changes[kind])
        old, _ = registry.read(before.get(kind) or own)
        gone = set(stated)
        if part is not old:
            gone |= set(setting_names(old)) - {"top_n"}
        merged = {key: value for key, value in merged.items() if key not in gone}
    return {**merged, **changes}


def label(found: Method) -> str:
    """A short name that tells methods apart and fits into a path: "dragin", "dragin-paper-threshold=0.8"."""
    parts = [found.name] + [found.variant] * (found.variant != "reference")
    return "-".join(parts + [_plain(f"{key}={value}") for key, value in changed(found).items()])


def _plain(text: str) -> str:
    short = re.sub(r"[^\w.=,+-]+", "_", text)
    return short if len(short) <= _LONGEST else f"{short[:20]}-{sha256(text.encode()).hexdigest()[:8]}"


def run_label(found: Method, retriever: str | None = None) -> str:
    """``label``, and after it the retriever that was asked for by name, where it is not plain BM25 and is searched."""
    if retriever in (None, "bm25") or not found.retrieves:
        return label(found)
    assert retriever is not None
    kind, _, address = without_secrets(retriever).partition(":")
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", address.rstrip("/").rpartition("/")[2]).strip("-")
    return "-".join([label(found), kind] + [short] * bool(short))


#: Parts that are called otherwise since a trace was written.
_RENAMED = {("what", "follow-up"): "term"}


def restored(settings: Mapping[str, Any], nlp: Any = None) -> Method:
    """The method of a trace, from the settings recorded there (``Method.settings``).

    Raises ``SettingError`` where they are not a method's, where a custom trigger or formulator is not defined here or
    has changed since, or where ``nlp`` (None: the default) is another pipeline than the one recorded, as other
    sentences and stop words are other decisions.
    """
    needed = ("name", "variant", "when", "what", "max_new_tokens", "top_k")
    missing = [key for key in needed if key not in settings]
    if missing or settings["name"] not in METHODS:
        what = f"has no {missing[0]!r}" if missing else f"is called {settings['name']!r}"
        raise SettingError(f"the trace's method {what}, so dragin_lab did not make it; take a trace of lab.ask")
    pipeline, recorded = load_pipeline(nlp), settings.get("pipeline")
    if recorded not in (None, pipeline.name):
        raise SettingError(
            f"the trace's sentences were found by {recorded!r}, here by {pipeline.name!r}; give the first as nlp"
        )
    parts: dict[str, Any] = {}
    tables: tuple[tuple[str, Registry[Any]], ...] = (("when", TRIGGERS), ("what", FORMULATORS))
    for kind, registry in tables:
        name = _RENAMED.get((kind, settings[kind]), settings[kind])
        if name not in registry.names():
            raise SettingError(
                f"the trace's {kind} {name!r} is not defined here; define it with @dl.{kind} to replay the trace"
            )
        found = registry.named(name)
        known = {f.name for f in fields(found)}
        parts[kind] = registry.make(found, **{key: settings[key] for key in known if key in settings})
        then = (settings.get("defined") or {}).get(name)
        if then is not None and then != parts[kind].fingerprint:
            raise SettingError(
                f"{kind} {name!r} has changed since the trace was written; define it as it was to replay it"
            )
    loop = {key: settings[key] for key in LOOP if key in settings}
    made = method(settings["name"], variant=settings["variant"], nlp=pipeline, **parts, **loop)
    return replace(made, calibrated=Calibrated(**settings["calibrated"])) if "calibrated" in settings else made
