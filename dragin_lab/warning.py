"""Warnings that point at the line of the user that led to them."""

from __future__ import annotations

import inspect
import sysconfig
import warnings
from pathlib import Path

_PLACES = ("stdlib", "platstdlib", "purelib", "platlib")
#: Where no line of the user is: in this package, in Python's own and in those that are installed.
_OTHERS = (f"{Path(__file__).parent}/", *(f"{sysconfig.get_path(name)}/" for name in _PLACES))


class LabWarning(UserWarning):
    """A warning of this package, which its command line shows."""


def warn(message: str) -> None:
    """Warn at the nearest line of the user, who can change no other."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OTHERS):
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, LabWarning, stacklevel=level)
