"""dragin_lab: see, token by token, why a language model retrieved. Public names load on first
use.
"""

from __future__ import annotations

from dragin_lab import drawn

# as in typing, which takes long to import: until the command line listens, Ctrl-C is Python's
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

#: Where the public names live; ``__init__.pyi`` says the same to type checkers and editors
#: (``python -m tools.stub``).
_NAMES = {
    "catalog.by_name": "method what when",
    "catalog.listing": "methods",
    "core.formulators": "Formulator Gap",
    "core.loop": "Loop",
    "core.prompts": "Exemplar PromptTemplate",
    "core.trigger": "Trigger",
    "engines.capture": "capture",
    "engines.transformers": "LanguageModel",
    "errors": "DraginLabError",
    "retrieval.bm25": "BM25",
    "retrieval.corpus": "Corpus",
    "run.benchmark": "benchmark",
    "run.cluster": "Cluster",
    "lab": "Lab",
    "results.sweeps": "Sweep",
    "study.attribution": "Attribution",
    "results.curve": "Curve",
    "results.paper_tables": "table",
    "results.runs": "Runs",
    "study.whatif": "Replay",
    "trace.trace": "Branches Draft Passage Question Trace",
    "triggers.call": "Call",
    "views.comparing": "compare",
    "views.pages": "page",
    "widgets.browsing": "browse",
    "widgets.exploring": "explore",
    "widgets.tuning": "tune",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

#: Rooms whose own names are public: ``dl.views.heatmap``, ``dl.almanac.labels``.
_ROOMS = ("almanac", "views")

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in (*_WHERE, *_ROOMS):
        raise AttributeError(f"module 'dragin_lab' has no attribute {name!r}")
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"dragin_lab.{name}")
    value = getattr(importlib.import_module(f"dragin_lab.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def _open_pages() -> None:
    """Import the pages of one trace, which need neither plotly nor an index."""
    from dragin_lab.views import (  # noqa: F401
        attribution,
        overview_page,
        rows,
        trace_page,
    )


def _open_figures() -> None:
    """Import all that compares and draws."""
    from dragin_lab.views import (  # noqa: F401
        attribution_figures,
        comparing,
        curves,
        differing,
        doubt,
        episodes,
        fan,
        flow,
        results,
    )


drawn.openers = [_open_pages, _open_figures]


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
