"""What a trigger needs to have captured beside probabilities, as ``needs=`` writes it: read and checked here alone."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dragin_lab.checks import several, shown
from dragin_lab.core.episode import SoFar
from dragin_lab.core.scores import fisher_rao, renyi, self_certainty, temper
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Continuation

_NUMBER = r"\d+(?:\.\d+)?"
_MEASURE = re.compile(
    rf"(?:(?P<renyi>renyi):(?P<order>{_NUMBER})|(?P<fisher>fisher-rao))(?:@(?P<t>{_NUMBER}))?|self-certainty"
)
_LAYERS = re.compile(r"attention:(?:(?P<index>-?\d+)|middle|middle-third)")
_OTHERS = re.compile(r"attention|received|entities|counts|hidden(:-?\d+)?")
_REMEDY = (
    "give a tuple of 'attention', 'attention:8', 'attention:middle', 'attention:middle-third', 'received', 'hidden', "
    "'hidden:12', 'renyi:2', 'renyi:0.5@1.5' (of temperature 1.5), 'fisher-rao', 'fisher-rao@1.5' or 'self-certainty'"
)


class Measure(NamedTuple):
    """A number for each token, of the whole distribution that it was drawn from."""

    kind: str  # "renyi", "fisher-rao" or "self-certainty"
    order: float  # of Rényi's entropy
    temperature: float


def read_needs(name: str, needs: Sequence[str]) -> tuple[str, ...]:
    """The needs of the trigger ``name``. Raises ``SettingError`` for what cannot be captured."""
    read = several(f"trigger {name!r}: needs", needs, str, _REMEDY)
    wrong = [need for need in read if not (_OTHERS.fullmatch(need) or _LAYERS.fullmatch(need) or find_measure(need))]
    if wrong:
        orders = "; the order of renyi and a temperature are above 0, and the order is not 1, which is 'entropy'"
        raise SettingError(
            f"needs={wrong!r} of trigger {name!r}: {_REMEDY}" + orders * any("renyi" in n or "@" in n for n in wrong)
        )
    return tuple(read)


def measures_in(needs: Sequence[str]) -> tuple[str, ...]:
    """Those of some needs that are numbers of the whole distribution, as they are written."""
    return tuple(need for need in needs if find_measure(need))


def layers_in(needs: Sequence[str]) -> tuple[str, ...]:
    """Those of some needs that are attention of layers by their numbers or places, as they are written."""
    return tuple(need for need in needs if _LAYERS.fullmatch(need))


def hidden_in(needs: Sequence[str]) -> int | str | None:
    """The layer whose hidden states are needed, "last" or an index; None where none are."""
    need = next((need for need in needs if need.startswith("hidden")), "")
    return int(need.partition(":")[2]) if ":" in need else "last" if need else None


def find_measure(need: str) -> Measure | None:
    """What a need measures of the whole distribution; None where it is another one, or cannot be."""
    match = _MEASURE.fullmatch(need)
    if match is None:
        return None
    order, temperature = float(match["order"] or 0), float(match["t"] or 1)
    usable = 0 < temperature < math.inf and (not match["renyi"] or (0 < order < math.inf and order != 1))
    if not usable:
        return None
    return Measure(match["renyi"] or match["fisher"] or need, order, temperature)


def read_measure(need: str) -> Measure:
    """As ``find_measure``; raises ``SettingError`` where it is None."""
    measure = find_measure(need)
    if measure is None:
        raise SettingError(f"{shown(need)} is not measured; give such as 'renyi:2', 'fisher-rao' or 'self-certainty'")
    return measure


def measure_rows(need: str, log_p: Any, xp: ModuleType = np) -> Any:
    """A measure of distributions log p (c, v), float32 or wider, of the raw logits: (c,).

    ``xp`` is the arrays' module, numpy or torch. Raises ``SettingError`` for a need that is no measure.
    """
    measure = read_measure(need)
    if measure.kind == "self-certainty":
        return self_certainty(log_p)
    log_p = log_p if measure.temperature == 1 else temper(log_p, measure.temperature, xp)
    return renyi(log_p, measure.order, xp) if measure.kind == "renyi" else fisher_rao(log_p, xp)


def find_layers(need: str, count: int) -> tuple[int, ...]:
    """The layers that a need names, from 0 on, of a model of ``count`` layers; none where it has no such layer.

    "attention:middle" is layer L // 2 of L, "attention:middle-third" L // 3 to ceil(2 L / 3), both included and below
    L. Raises ``SettingError`` for a need that names none.
    """
    match = _LAYERS.fullmatch(need)
    if match is None:
        raise SettingError(f"{shown(need)} names no layer; give such as 'attention:8' or 'attention:middle-third'")
    layers = range(count)
    if match["index"] is not None:
        index = int(match["index"])
        return (index % count,) if -count <= index < count else ()
    middle = layers[count // 3 : math.ceil(2 * count / 3) + 1] if need.endswith("third") else layers[count // 2 :][:1]
    return tuple(middle)


def resolve_layers(need: str, count: int) -> tuple[int, ...]:
    """As ``find_layers``; raises ``SettingError`` where there is no such layer."""
    layers = find_layers(need, count)
    if not layers:
        raise SettingError(f"needs={need!r}: this model has the {count} layers 0 to {count - 1}; give one of them")
    return layers


def find_missing(needs: Sequence[str], written: Continuation | SoFar) -> list[str]:
    """Those of some needs that were not captured with what was written. What a trigger consults is no part of that."""
    held = {"received", "entities", "counts", *written.measures}
    held |= {"attention"} if written.attention is not None else set()
    held |= {need for need in needs if need.startswith("hidden") and written.hidden is not None}
    for need in layers_in(needs):
        layers = find_layers(need, written.layer_count)
        held |= {need} if layers and written.layers.keys() >= set(layers) else set()
    return [need for need in needs if need not in held]
