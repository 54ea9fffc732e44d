"""What a trigger needs to have captured beside probabilities, as ``needs=`` writes it: read and checked here alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dragin_lab.checks import several
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Draft

_NEED = re.compile(r"attention|received|entities|thoughts|hidden(:-?\d+)?")
_REMEDY = "give a tuple of 'attention', 'received', 'entities', 'thoughts', 'hidden' or 'hidden:12'"


def read_needs(name: str, needs: Sequence[str]) -> tuple[str, ...]:
    """The needs of the trigger ``name``. Raises ``SettingError`` for what cannot be captured."""
    read = several(f"trigger {name!r}: needs", needs, str, _REMEDY)
    if wrong := [need for need in read if not _NEED.fullmatch(need)]:
        raise SettingError(f"needs={wrong!r} of trigger {name!r}: {_REMEDY}")
    return tuple(read)


def hidden_in(needs: Sequence[str]) -> int | str | None:
    """The layer whose hidden states are needed, "last" or an index; None where none are."""
    need = next((need for need in needs if need.startswith("hidden")), "")
    return int(need.partition(":")[2]) if ":" in need else "last" if need else None


def find_missing(needs: Sequence[str], written: Draft) -> list[str]:
    """Those of some needs that were not captured with what was written."""
    held = {"received", "entities", "thoughts"}
    held |= {"attention"} if written.rows is not None else set()
    held |= {need for need in needs if need.startswith("hidden") and written.states is not None}
    return [need for need in needs if need not in held]
