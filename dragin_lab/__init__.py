"""dragin_lab: see, token by token, why a language model retrieved. Public names load on first use."""

# ruff: noqa: F401
from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes long to import: until the command line listens, Ctrl-C is Python's
if TYPE_CHECKING:  # what ``_WHERE`` says, for type checkers and editors
    from typing import Any

    from dragin_lab import almanac, views
    from dragin_lab.catalog.methods import method, methods, what, when
    from dragin_lab.core.formulators import Formulator, Gap
    from dragin_lab.core.prompts import Exemplar, PromptTemplate
    from dragin_lab.core.trigger import Trigger
    from dragin_lab.engines.capture import capture
    from dragin_lab.retrieval.bm25 import BM25
    from dragin_lab.retrieval.corpus import Corpus
    from dragin_lab.run.benchmark import benchmark
    from dragin_lab.run.cluster import Cluster
    from dragin_lab.run.lab import Lab
    from dragin_lab.run.sweeps import Sweep
    from dragin_lab.study.fitting import fit_trigger
    from dragin_lab.study.paper_tables import table
    from dragin_lab.study.runs import Runs
    from dragin_lab.study.spans import Spans
    from dragin_lab.study.whatif import Replay
    from dragin_lab.trace.trace import Branches, Draft, Passage, Question, Trace
    from dragin_lab.triggers.call import Call
    from dragin_lab.views.comparing import compare
    from dragin_lab.views.pages import page
    from dragin_lab.widgets.browsing import browse
    from dragin_lab.widgets.exploring import explore
    from dragin_lab.widgets.tuning import tune

__version__ = "0.1.0"

_WHERE = {
    "BM25": "retrieval.bm25",
    "Branches": "trace.trace",
    "Call": "triggers.call",
    "Cluster": "run.cluster",
    "Corpus": "retrieval.corpus",
    "Draft": "trace.trace",
    "Exemplar": "core.prompts",
    "Formulator": "core.formulators",
    "Gap": "core.formulators",
    "Lab": "run.lab",
    "Passage": "trace.trace",
    "PromptTemplate": "core.prompts",
    "Question": "trace.trace",
    "Replay": "study.whatif",
    "Runs": "study.runs",
    "Spans": "study.spans",
    "Sweep": "run.sweeps",
    "Trace": "trace.trace",
    "Trigger": "core.trigger",
    "benchmark": "run.benchmark",
    "browse": "widgets.browsing",
    "capture": "engines.capture",
    "compare": "views.comparing",
    "explore": "widgets.exploring",
    "fit_trigger": "study.fitting",
    "method": "catalog.methods",
    "methods": "catalog.methods",
    "page": "views.pages",
    "table": "study.paper_tables",
    "tune": "widgets.tuning",
    "what": "catalog.methods",
    "when": "catalog.methods",
}

#: Rooms whose own names are public: ``dl.views.roc``, ``dl.almanac.labels``.
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


def __dir__() -> list[str]:
    return [*globals(), *__all__]
