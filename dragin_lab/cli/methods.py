"""Which methods a command runs: every combination of the values that ``--set`` gives the settings they declare."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import Any

import rich_click as click

from dragin_lab.catalog import methods as catalog
from dragin_lab.catalog.methods import merge_settings, tables
from dragin_lab.cli.options import ELSEWHERE, Decorator, Names, join_options
from dragin_lab.core.method import LOOP, METHODS, VARIANTS, Method
from dragin_lab.data.presets import find_preset
from dragin_lab.errors import DraginLabError
from dragin_lab.files import as_path
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS

DEFAULT = "dragin"  # method
_PARTS = ("variant", "when", "what")
_WORDS = {"true": True, "yes": True, "false": False, "no": False, "none": None}
_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # not within parentheses


class Setting(click.ParamType):
    """``KEY=VALUE,…``. A value that is not a number, a list or true and false stays a text."""

    name = "key=value,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        key, equals, text = (part.strip() for part in str(value).partition("="))
        values = [part.strip() for part in _COMMA.split(text)]
        if not (equals and key.isidentifier() and all(values)):
            self.fail(f"{value!r}: write KEY=VALUE, such as threshold=1.2, or KEY=VALUE,VALUE", param, ctx)
        return key, tuple(dict.fromkeys(map(_read_literal, values)))


def _read_literal(text: str) -> Any:
    try:
        value = _WORDS[text.lower()] if text.lower() in _WORDS else ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value


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


def collect_settings(ctx: click.Context, param: click.Parameter, pairs: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
    """Setting -> its values."""
    given: dict[str, tuple[Any, ...]] = {}
    for key, values in pairs:
        if given.setdefault(key, values) != values:
            raise click.UsageError(f"--set {key} is given twice; give all its values at once: {key}=VALUE,VALUE")
    return given


set_option = click.option(
    "--set", "given", type=Setting(), multiple=True, panel="Method",
    callback=collect_settings,
    help="Any setting; several values stand between commas, and it may be repeated. Of the method: variant=reference, "
    "when=margin@0.6, what=last-n, threshold=1.2, top_n=25, top_k=3, max_new_tokens=64 (dl.methods() lists more). Of "
    "the model: device, dtype, device_map, quantization=4bit, layer, heads=[0,3], engine, tokenizer, sample=true.",
)  # fmt: skip
with_option = click.option(
    "--with", multiple=True, metavar="FILE", panel="Method", is_eager=True, expose_value=False, callback=define_parts,
    help="Your own triggers and query formulators: a Python file that defines them, or the JSON file of a fitted "
    "trigger; may be repeated.",
)  # fmt: skip
method_options: Decorator = join_options(
    click.option(
        "--method", "names", type=Names(tuple(METHODS)), default=DEFAULT, show_default=True, panel="Method",
        help="The method.",
    ),
    set_option,
    with_option,
)  # fmt: skip


def list_settings(name: str, variant: str | None, when: str | None, what: str | None) -> set[str]:
    """The settings of the method ``name``, where its parts may be others in their written form."""
    known = variant if name in REFERENCE_METHODS and variant in VARIANTS else VARIANTS[0]
    forms = zip(tables(str(known)), (when, what), METHODS[name], strict=True)
    parts = [registry.read(form or own)[0] for (_, registry), form, own in forms]
    return {*LOOP} | {f.name for part in parts for f in fields(part)}


def build_methods(
    names: Sequence[str], given: Mapping[str, tuple[Any, ...]], published: Mapping[str, dict[str, Any]] | None = None
) -> tuple[list[Method], set[str]]:
    """Every method in every combination of the settings that it takes, each once; the settings with several values.

    ``published`` gives a method's settings where ``given`` leaves them open; else they are the method's own.
    Raises ``UsageError`` for a setting that no method takes, or that the methods do not measure alike.
    """
    methods: dict[Method, None] = {}
    known: set[str] = set()
    for name in names:
        own = (published or {}).get(name, {})
        for chosen in product(*(given.get(key, (None,)) for key in _PARTS)):
            stated = {key: value for key, value in zip(_PARTS, chosen, strict=True) if value is not None}
            settings = list_settings(name, *(chosen[0] or own.get("variant"), *chosen[1:]))
            known |= settings
            keys = [key for key in given if key in settings]
            for values in product(*(given[key] for key in keys)):
                merged = merge_settings(own, name, stated | dict(zip(keys, values, strict=True)))
                methods[catalog.method(name, **merged)] = None
    for key in given.keys() - {*_PARTS, *ELSEWHERE}:
        _check_alike(key, given[key], methods, known)
    return list(methods), {key for key, values in given.items() if len(values) > 1 and key not in ELSEWHERE}


def _check_alike(key: str, values: tuple[Any, ...], methods: Mapping[Method, None], known: set[str]) -> None:
    """Refuse a setting that no method takes, and one that would mean different things to the methods."""
    option = f"--set {key}={','.join(map(str, values))}"
    if key not in known:
        symbols = {"theta": "threshold", "θ": "threshold", "k": "top_k"}
        near = symbols.get(key) or "".join(difflib.get_close_matches(key, [*known, *_PARTS, *ELSEWHERE], n=1))
        raise click.UsageError(f"{option}: none of the methods takes it" + f"; did you mean {near!r}?" * bool(near))
    parts = {part for method in methods for part in (method.trigger, method.formulator)}
    meanings = {part.name for part in parts if part.settings.get(key) is not None}
    if key in ("threshold", "top_n", "n") and len(meanings) > 1:
        named = " and ".join(sorted(meanings))
        raise click.UsageError(f"{option}: {named} do not measure alike; run the methods one by one")


def build_method(names: Sequence[str], given: Mapping[str, tuple[Any, ...]]) -> Method:
    """The one method that the options describe."""
    methods, _ = build_methods(names, given)
    if len(methods) > 1:
        labels = ", ".join(method.label for method in methods)
        raise click.UsageError(f"{labels}: this command takes one method with one value of each setting")
    return methods[0]


def find_published(preset: str, model: str | None, names: Sequence[str], dataset: str) -> dict[str, dict[str, Any]]:
    """What ``--preset`` gives each method for a data set."""
    named, _, source = preset.rpartition(":")
    if not (named or model):
        raise click.UsageError(f"--preset {preset}: say for which model, as in llama2-7b-chat:{preset}")
    return {name: find_preset(named or str(model), dataset, source=source, method=name).settings for name in names}
