"""``@dl.when``: a trigger from a function that scores the tokens of a draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dragin_lab.checks import choice, number
from dragin_lab.core.custom import read_needs
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.errors import SettingError

UNITS = ("word", "sentence", "step", "draft")
POOLS = ("max", "mean", "min", "sum")


def when(
    name: str,
    *,
    threshold: float | None = None,
    unit: str = "word",
    pool: str = "max",
    cut: str | None = None,
    skip_stop_words: bool = False,
    needs: Sequence[str] = (),
    loop: Any = None,
    source: str = "",
) -> Callable[[Callable[..., np.ndarray]], type[Trigger]]:
    """Make a trigger from a function that scores the tokens of a draft, and enter it under
    ``name``.

    The function takes a ``Draft`` of n tokens and returns (n,) finite numbers, larger where the
    model is less sure. Its further parameters, each with a default, become settings.

    Args:
        name: how it is called in ``when="margin"``, labels, tables and files. threshold: θ where
            none is given. Where it is below 0, θ may be any number, else it is at least 0. unit:
            what is compared with θ: each "word", "sentence" or "step" of a chain of thought (a
            line), or the "draft". pool: how the tokens' scores make a unit's: "max", "mean", "min"
            or "sum". cut: where a draft that fires is cut, before its "word", "sentence" or "step",
            or all of the "draft"; default
            the unit.
        skip_stop_words: stop words score 0, as RIND has it (Eq. 4). Without it they count like any
            other word. needs: "attention" to have ``draft.attention``; "hidden" or "hidden:12" to
            have ``draft.hidden``; "received"
            where it reads ``draft.received``, so that models without attention are refused, and
            "entropy" for those without entropies; "thoughts" to fire in what a thinking model
            thinks, too.
        loop: how an episode goes on, a subclass of ``dl.Loop``; None writes until it fires,
            retrieves and resumes. source: where the idea is from.

    Raises ``SettingError`` for values that do not exist, a built-in name, and a parameter without
    default.
    """
    cut = unit if cut is None else cut
    for label, value, known in (("unit", unit, UNITS), ("pool", pool, POOLS), ("cut", cut, UNITS)):
        choice(f"trigger {name!r}: {label}", value, known)
    if UNITS.index(cut) < UNITS.index(unit):
        raise SettingError(
            f"trigger {name!r} judges a {unit} and so cannot cut before a {cut}; use cut={unit!r}"
        )
    theta = None if threshold is None else number("threshold", threshold, -np.inf)
    settings = {"threshold": setting(theta, kind=float, label=f"{name} score")}
    return TRIGGERS.define(
        name,
        settings=settings,
        needs=read_needs(name, needs),
        unit=unit,
        pool=pool,
        cut=cut,
        skip_stop_words=skip_stop_words,
        loop=loop,
        source=source,
    )
