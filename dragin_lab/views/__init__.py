"""Figures and pages of traces, sweeps and runs.

Figures are plotly's (``plotly.graph_objects.Figure``), each drawn from a table that you have
anyway: ``trace.tokens``, ``sweep.table``. Pages are HTML and CSS alone. Names load on first use, so
that text in a terminal needs no plotly.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "comparing": ("compare",),
    "episodes": ("attention", "selections"),
    "overview_page": ("overview",),
    "pages": ("Page", "page"),
    "results": ("frontier", "runs_plot", "sweep"),
    "rows": ("heatmap",),
    "trace_page": ("replayed", "trace", "trace_text"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
