"""The lists of methods, triggers and query formulators."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from html import escape
from typing import Any

from dragin_lab.catalog.by_name import FORMULATORS, METHODS, TRIGGERS
from dragin_lab.checks import choice
from dragin_lab.core.settings import Registry, Settings


@dataclass(frozen=True)
class Listed:
    """One row of the list of triggers, formulators or methods."""

    name: str
    settings: Settings  # setting -> default
    source: str  # a paper's section or equation
    line: str  # what it does

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings}): {self.line}" + (
            f" [{self.source}]" if self.source else ""
        )


class Listing(list[Listed]):
    """Rows of a list; printing it gives their names, a notebook shows what each does."""

    def __repr__(self) -> str:
        return f"Listing({', '.join(one.name for one in self)})"

    def _repr_html_(self) -> str:
        items = (f"<li>{escape(str(one))}</li>" for one in self)
        return f"<ul>{''.join(items)}</ul>"


def methods(of: str = "method") -> Listing:
    """Every method, with the settings of its trigger and its formulator (DRAGIN, Table 1).

    ``of="when"`` gives every trigger and ``"what"`` every query formulator, your own among them.
    """
    if choice("of", of, ("method", "when", "what")) != "method":
        return list_parts(TRIGGERS if of == "when" else FORMULATORS)
    listed = Listing()
    for name, (when, what) in METHODS.items():
        trigger = TRIGGERS.named(when)
        formulator = FORMULATORS.named(what)
        settings = trigger.defaults() | formulator.defaults()
        listed.append(Listed(name, settings, trigger.source, f"{when} x {what}"))
    return listed


def list_parts(registry: Registry[Any]) -> Listing:
    """One entry per part, in the order of definition."""
    listed = Listing()
    for part in map(registry.named, registry):
        line = (inspect.getdoc(part) or "").partition("\n")[0]
        listed.append(Listed(part.name, part.defaults(), part.source, line))
    return listed
