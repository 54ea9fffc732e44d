"""Which methods a command runs: options made of the settings that the methods declare, in every combination."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import Any

import rich_click as click

from dragin_lab.catalog import methods as catalog
from dragin_lab.catalog.methods import merge_settings, tables
from dragin_lab.cli.options import NUMBER, Decorator, Names, debug_option, join_options
from dragin_lab.cli.outputs import echo, table_text
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.method import LOOP, METHODS, VARIANTS, Method
from dragin_lab.core.settings import Registry, read_form
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data.presets import find_preset
from dragin_lab.errors import DraginLabError
from dragin_lab.files import as_path
from dragin_lab.reference.rules import REFERENCE_METHODS

TABLES: tuple[Registry[Any], ...] = (TRIGGERS, FORMULATORS)
_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # not within parentheses


class Numbers(click.ParamType):
    """``1,1.2``."""

    name = "value,…"

    def __init__(self, kind: click.ParamType) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(self.kind.convert(part.strip(), param, ctx) for part in str(value).split(","))


class Part(click.ParamType):
    """Triggers or query formulators by name or written form, such as ``margin(first=20)@0.6``, between commas."""

    name = "name[(setting=value)][@θ]"

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        texts = [text.strip() for text in _COMMA.split(str(value))]
        for text in texts:
            self.registry.make(text)
        return tuple(dict.fromkeys(texts))


class Setting(click.ParamType):
    """``NAME=VALUE,…``. A value that is not a number stays a text."""

    name = "name=value,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, equals, text = (part.strip() for part in str(value).partition("="))
        if not (equals and name.isidentifier() and text):
            self.fail(f"{value!r}: write NAME=VALUE, such as first=20", param, ctx)
        if name in _ARGUMENTS and name not in LOOP:
            option = f"--{'method' if name == 'name' else name}"
            self.fail(f"{value!r}: this is no setting of a trigger or a query formulator; give {option}", param, ctx)
        return name, tuple(_read_literal(part.strip()) for part in _COMMA.split(text))


def _read_literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def define_parts(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> None:
    """Run Python files for the triggers and query formulators that they define."""
    for number, name in enumerate(files):
        path = as_path(name)
        if not path.is_file():
            raise click.UsageError(f"--with {name}: no such file; give a Python file with @dl.when or @dl.what in it")
        if path.suffix == ".json":
            from dragin_lab.study.fitting import trigger

            trigger(path)
            continue
        private = f"_dragin_lab_with_{number}_{path.stem}"  # no module of that name can be in use
        spec = importlib.util.spec_from_file_location(private, path)
        if spec is None or spec.loader is None:
            raise click.UsageError(f"--with {name}: is not a Python file; its name must end in .py, or .json")
        sys.modules[private] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except DraginLabError as error:
            raise click.UsageError(f"--with {name}: {error}") from error
        except Exception as error:  # whatever a user's own file raises
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise click.UsageError(f"--with {name}, line {where.lineno}: {type(error).__name__}: {error}") from error


# -- options of what the methods declare ------------------------------------------------------------------------------


def default_settings(
    name: str, when: str | None = None, what: str | None = None, variant: str | None = None
) -> dict[str, Any]:
    """Setting -> default of the method ``name``, where its parts may be others in their written form."""
    known = variant if name in REFERENCE_METHODS else VARIANTS[0]  # any other is refused when it is made
    forms = zip(tables(known or VARIANTS[0]), (when, what), METHODS[name], strict=True)
    parts = [registry.read(form or own)[0] for (_, registry), form, own in forms]
    # The default of a threshold that has none is None; ``defaults`` leaves it out.
    return dict.fromkeys(LOOP) | {f.name: part.defaults().get(f.name) for part in parts for f in fields(part)}


def _noted_settings() -> dict[str, dict[str, Any]]:
    """The settings that the written form ``name(n=25)@1.2`` has a sign for: setting -> method -> default."""
    parts = [part for registry in TABLES for part in map(registry.named, registry.names())]
    noted = sorted({part.shorthand for part in parts if part.shorthand} | {"threshold"})
    defaults = {name: _defaults_by_variant(name) for name in METHODS}
    return {key: {name: values[key] for name, values in defaults.items() if key in values} for key in noted}


def _defaults_by_variant(name: str) -> dict[str, Any]:
    """Setting -> default of a method; variant -> default, where the variants differ."""
    paper = default_settings(name)
    if name not in REFERENCE_METHODS:
        return {key: value for key, value in paper.items() if value is not None}
    released = default_settings(name, variant="reference")
    return {
        key: value if released.get(key) in (None, value) else {"paper": value, "reference": released[key]}
        for key, value in paper.items()
        if value is not None
    }


def _noted_option(key: str, defaults: dict[str, Any]) -> Decorator:
    noun = next(registry.noun for registry in TABLES if registry.any_has(key))
    shown = ", ".join(f"{name} {_by_variant(value)}" for name, value in defaults.items())
    return click.option(
        f"--{key.replace('_', '-')}", panel="Method",
        type=Numbers(click.INT if all(isinstance(value, int) for value in defaults.values()) else NUMBER),
        help=f"{key} of the {noun}; default {shown}.",
    )  # fmt: skip


def _by_variant(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value:g}" if isinstance(value, float) else f"{value!r}"
    return " or ".join(f"{of:g} ({variant})" for variant, of in value.items())


#: Arguments of ``dl.method``, and the settings that have an option of their own; others are for --set.
_SIGNATURE = inspect.signature(catalog.method).parameters
_ARGUMENTS = [name for name, of in _SIGNATURE.items() if of.kind != of.VAR_KEYWORD]
DEFAULT: str = _SIGNATURE["name"].default  # method
NOTED = _noted_settings()
_LENGTHS = {name: TRIGGERS.named(when).length for name, (when, _) in METHODS.items()}

with_option = click.option(
    "--with", multiple=True, metavar="FILE", panel="Method", is_eager=True, expose_value=False, callback=define_parts,
    help="Your own triggers and query formulators: a Python file that defines them, or the JSON file of a fitted "
    "trigger; may be repeated.",
)  # fmt: skip


def method_options(*, named: bool = True, length: int = TRIGGERS.base.length) -> Decorator:
    """The options that make up methods, for ``build_methods``.

    ``named`` lets the user choose the methods; ``length`` is the default of ``--max-new-tokens``.
    """
    longer = ", ".join(f"{name} {tokens}" for name, tokens in _LENGTHS.items() if tokens > length)
    choose = click.option(
        "--method", "names", type=Names(tuple(METHODS)), default=DEFAULT, show_default=True, panel="Method",
        help="The method.",
    )  # fmt: skip
    return join_options(
        *([choose] if named else []),
        click.option(
            "--variant", type=Names(VARIANTS), panel="Method",
            help="The papers' equations (the default), or the authors' released code (that of presets).",
        ),
        with_option,
        click.option(
            "--when", type=Part(TRIGGERS), panel="Method",
            help="The trigger, instead of the method's own, such as 'margin(beta=2)@0.6'.",
        ),
        click.option(
            "--what", type=Part(FORMULATORS), panel="Method",
            help="The query formulator, instead of the method's own; 'dragin-lab methods' lists both.",
        ),
        *(_noted_option(key, defaults) for key, defaults in NOTED.items()),
        click.option(
            "--set", "given", type=Setting(), multiple=True, panel="Method",
            help="Any setting of the trigger or the query formulator; may be repeated.",
        ),
        click.option(
            "--top-k", type=int, panel="Method", help="Passages per retrieval; default 3 (flare, paper variant: 2)."
        ),
        click.option(
            "--max-new-tokens", type=int, panel="Method",
            help=f"Most tokens of a draft and of an answer; default {length} ({longer}).",
        ),
    )  # fmt: skip


# -- methods of options -----------------------------------------------------------------------------------------------


def build_methods(
    options: Mapping[str, Any], published: Mapping[str, dict[str, Any]] | None = None
) -> tuple[list[Method], set[str]]:
    """Every method in every combination of the settings that it takes, each once; the settings with several values.

    ``published`` gives a method's settings where an option leaves them open; else they are the method's own.
    Raises ``UsageError`` for a setting that is given twice, and for one that no method takes.
    """
    combined = list(
        product(options["variant"] or (None,), options["names"], options["when"] or (None,), options["what"] or (None,))
    )
    given = _given_values(options, combined)
    methods: dict[Method, None] = {}
    used: set[str] = set()
    for variant, name, when, what in combined:
        own = (published or {}).get(name, {})
        known = default_settings(name, when, what, variant or own.get("variant"))
        parts = {"variant": variant, "when": when, "what": what} | {key: options[key] for key in LOOP}
        stated = {key: value for key, value in parts.items() if value is not None}
        keys = [key for key in given if key in known]
        used.update(keys)
        values = [[_as_setting(key, value, known[key]) for value in given[key]] for key in keys]
        for combination in product(*values):
            settings = merge_settings(own, name, stated | dict(zip(keys, combination, strict=True)))
            methods[catalog.method(name, **settings)] = None
    for key in given.keys() - used:
        raise click.UsageError(
            f"--set {key}={given[key][0]}: none of the methods takes it; 'dragin-lab methods' lists all"
        )
    return list(methods), {key for key in used if len(given[key]) > 1}


def build_method(options: Mapping[str, Any]) -> Method:
    """The one method that the options describe."""
    methods, _ = build_methods(options)
    if len(methods) > 1:
        labels = ", ".join(method.label for method in methods)
        raise click.UsageError(f"{labels}: this command takes one method with one value of each setting")
    return methods[0]


def _given_values(options: Mapping[str, Any], combined: Sequence[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Setting -> the values that options state for it."""
    given = {key: options[key] for key in NOTED if options[key] is not None}
    for key, values in given.items():
        _check_alike(key, values, combined)
    for key, values in options["given"]:
        stated = options[key] if key in LOOP else given.get(key, (None,))[0]
        if stated is not None and (stated,) != values:
            option = f"--{key.replace('_', '-')}" if key in LOOP or options.get(key) else "--set"
            text = ",".join(map(str, values))
            raise click.UsageError(f"{option} {key}={stated} and --set {key}={text}: give one of the two")
        given[key] = values
    return given


def _check_alike(key: str, values: Sequence[Any], combined: Sequence[tuple[Any, ...]]) -> None:
    """Refuse values that no method takes, and those that would mean different things to the methods."""
    option = f"--{key.replace('_', '-')} {','.join(f'{value:g}' for value in values)}"
    meanings = {part for _, name, when, what in combined for part in _parts_with(key, name, when, what)}
    if not meanings:
        raise click.UsageError(f"{option}: none of the methods takes it; leave it out")
    if len(meanings) > 1:
        raise click.UsageError(
            f"{option}: {' and '.join(sorted(meanings))} do not measure alike; run the methods one by one"
        )


def _parts_with(key: str, name: str, when: str | None, what: str | None) -> Iterator[str]:
    for registry, form, own in zip(TABLES, (when, what), METHODS[name], strict=True):
        part = registry.named(read_form(form or own)[0])
        if key in {f.name for f in fields(part)}:
            yield part.name


def _as_setting(key: str, value: Any, default: Any) -> Any:
    """A value of ``--set``, where a flag may be given in words."""
    if not isinstance(default, bool):
        return value
    try:
        return bool(click.BOOL.convert(str(value), None, None))
    except click.BadParameter:
        raise click.UsageError(f"--set {key}={value}: give true or false") from None


def find_published(preset: str, model: str | None, names: Sequence[str], dataset: str) -> dict[str, dict[str, Any]]:
    """What ``--preset`` gives each method for a data set."""
    named, _, source = preset.rpartition(":")
    if not (named or model):
        raise click.UsageError(f"--preset {preset}: say for which model, as in llama2-7b-chat:{preset}")
    return {name: find_preset(named or str(model), dataset, source=source, method=name).settings for name in names}


@click.command("methods", short_help="List the methods, triggers and query formulators there are.")
@with_option
@debug_option
def methods() -> None:
    """List every method, trigger and query formulator, with its settings, what it does, and where it comes from."""
    for title, entries in (("method", catalog.methods()), ("when", catalog.whens()), ("what", catalog.whats())):
        rows = [(one.name, _write_settings(one.settings), one.line, one.source) for one in entries]
        echo(table_text((title, "settings", "what it does", "source"), rows) + "\n")


def _write_settings(settings: Mapping[str, Any]) -> str:
    """Settings with their defaults; one without a default by its name alone."""
    return ", ".join(key if default is None else f"{key}={default!r}" for key, default in settings.items())
