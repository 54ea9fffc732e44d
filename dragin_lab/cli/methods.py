"""Which methods a command runs: names and settings from options, in every combination, over published presets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import rich_click as click

from dragin_lab.cli.options import Name, debug_option, default_settings, stated_settings, with_option
from dragin_lab.cli.outputs import echo, table_text
from dragin_lab.core.method import METHODS, Method, choice, settings_beside
from dragin_lab.core.method import method as make_method
from dragin_lab.core.parts import read_form
from dragin_lab.data.presets import SOURCES, find_preset
from dragin_lab.errors import SettingError

Values = tuple[str | None, tuple[Any, ...]]  # the method they are for, None for all


class PerMethod(click.ParamType):
    """Values between commas, with the method they are for before them where they are not for all: ``dragin=1,1.2``."""

    name = "[method=]value,…"

    def __init__(self, kind: click.ParamType) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Values:
        if isinstance(value, tuple):
            return value
        name, equals, values = str(value).rpartition("=")
        method = Name(tuple(METHODS)).convert(name, param, ctx) if equals else None
        return method, tuple(self.kind.convert(part.strip(), param, ctx) for part in values.split(","))


def build_methods(
    names: Sequence[str], options: dict[str, Any], published: dict[str, dict[str, Any]] | None = None
) -> list[Method]:
    """Every method in every combination of the settings that it takes, each once.

    ``published`` gives a method's settings where an option leaves them open; else they are the method's own.
    """
    combined = [
        (name, {"variant": variant, "when": when, "what": what})
        for variant, name, when, what in product(
            options["variant"] or (None,), names, options["when"] or (None,), options["what"] or (None,)
        )
    ]
    sizes = {key: options[key] for key in ("top_k", "max_new_tokens")}
    several = {key: _values_of(key, options[key], combined) for key in ("threshold", "top_n")}
    found: dict[Method, None] = {}
    untaken = dict(options.get("given", ()))
    for name, parts in combined:
        known = default_settings(name, parts["when"], parts["what"])
        taken = [(key, value) for key, value in options.get("given", ()) if key in known]
        untaken = {key: value for key, value in untaken.items() if key not in known}
        choices = [of.get(name, ()) if key in known else () for key, of in several.items()]
        for theta, top_n in product(*(values or (None,) for values in choices)):
            wanted = sizes | parts | {"threshold": theta, "top_n": top_n, "given": taken}
            before = (published or {}).get(name, {})
            found[make_method(name, **settings_beside(before, name, stated_settings(name, wanted)))] = None
    for key, value in untaken.items():
        raise click.UsageError(f"--set {key}={value}: none of the methods takes it; 'dragin-lab methods' lists all")
    return list(found)


def published_settings(preset: str, model: str | None, names: Sequence[str], dataset: str) -> dict[str, dict[str, Any]]:
    """What ``--preset`` gives each method for a data set, from the first of its sources that gives anything."""
    given, _, sources = preset.rpartition(":")
    if not (given or model):
        raise click.UsageError(f"--preset {preset}: say for which model, as in llama2-7b-chat:{preset}")
    tried = [choice("source", source.strip(), SOURCES) for source in sources.split(",")]
    return {name: _published(given or str(model), dataset, tried, name) for name in names}


def _published(model: str, dataset: str, sources: Sequence[str], name: str) -> dict[str, Any]:
    refused = []
    for source in sources:
        try:
            return find_preset(model, dataset, source=source, method=name).settings
        except SettingError as error:
            refused.append(error)
    raise refused[0]


def _values_of(
    key: str, given: Sequence[Values], combined: Sequence[tuple[str, dict[str, Any]]]
) -> dict[str, tuple[Any, ...]]:
    """The values of a setting for each method. Those for all go to the methods that take them and have none."""
    option = f"--{key.replace('_', '-')}"
    units: dict[str, set[str]] = {}  # method -> what it holds against the value, or cuts to it
    for name, parts in combined:
        units.setdefault(name, set()).update(_measures(name, parts, key))
    own: dict[str, tuple[Any, ...]] = {}
    for_all: tuple[Any, ...] = ()
    for method, values in given:
        if method is None:
            for_all += values
        elif not units.get(method):
            why = "does not take it" if method in units else "is not among the methods that are run"
            raise click.UsageError(f"{option} {method}={_join(values)}: {method} {why}")
        else:
            own[method] = own.get(method, ()) + values
    rest = {name: of for name, of in units.items() if of and name not in own}
    if for_all and not rest:
        raise click.UsageError(f"{option} {_join(for_all)}: none of the methods takes it; leave it out")
    if for_all and len(set.union(*rest.values())) > 1:
        example = " ".join(f"{option} {name}={for_all[0]:g}" for name in rest)
        raise click.UsageError(
            f"{option} {_join(for_all)}: {' and '.join(sorted(set.union(*rest.values())))} do not measure alike; "
            f"say which method it is for, as in {example}"
        )
    return dict.fromkeys(rest, for_all) | own if for_all else own


def _measures(name: str, parts: dict[str, Any], key: str) -> set[str]:
    """The part that a setting of a method is for; nothing where it does not take that setting."""
    if key not in default_settings(name, parts["when"], parts["what"]):
        return set()
    when, what = METHODS[name]
    return {read_form(parts["when"] or when)[0] if key == "threshold" else read_form(parts["what"] or what)[0]}


def _join(values: Sequence[Any]) -> str:
    return ",".join(f"{value:g}" for value in values)


# -- the list of all there is -----------------------------------------------------------------------------------------


@click.command("methods", short_help="List the methods, triggers and queries there are.")
@with_option
@debug_option
def methods() -> None:
    """List every method, when and what, with its settings, what it does, and where it comes from."""
    from dragin_lab.core.method import methods, whats, whens

    for title, entries in (("method", methods()), ("when", whens()), ("what", whats())):
        rows = [
            (one.name, ", ".join(_default(*setting) for setting in one.settings.items()), one.line, one.source)
            for one in entries
        ]
        echo(table_text((title, "settings", "what it does", "source"), rows, left=True) + "\n")


def _default(setting: str, value: Any) -> str:
    if isinstance(value, dict):  # by variant
        return f"{setting}={' or '.join(f'{one!r} ({variant})' for variant, one in value.items())}"
    return setting if setting == "threshold" and value is None else f"{setting}={value!r}"
