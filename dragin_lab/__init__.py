"""dragin_lab: see, token by token, why a language model retrieved. Public names load on first use."""

# ruff: noqa: F401
from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes long to import: until the command line listens, Ctrl-C is Python's
if TYPE_CHECKING:  # what ``_WHERE`` says, for type checkers and editors
    from typing import Any

    from dragin_lab import almanac, views
    from dragin_lab.catalog.by_name import method, methods, what, when
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
    from dragin_lab.study.paper_tables import table
    from dragin_lab.study.runs import Runs
    from dragin_lab.study.spans import Spans
    from dragin_lab.study.whatif import Replay
    from dragin_lab.trace.trace import Branches, Draft, Passage, Question, Trace
    from dragin_lab.triggers.call import Call
    from dragin_lab.views.comparing import compare
    from dragin_lab.views.pages import page
    from dragin_lab.widgets.exploring import browse, explore
    from dragin_lab.widgets.tuning import tune

__version__ = "0.1.0"

_NAMES = {
    "catalog.by_name": "method methods what when",
    "core.formulators": "Formulator Gap",
    "core.prompts": "Exemplar PromptTemplate",
    "core.trigger": "Trigger",
    "engines.capture": "capture",
    "retrieval.bm25": "BM25",
    "retrieval.corpus": "Corpus",
    "run.benchmark": "benchmark",
    "run.cluster": "Cluster",
    "run.lab": "Lab",
    "run.sweeps": "Sweep",
    "study.paper_tables": "table",
    "study.runs": "Runs",
    "study.spans": "Spans",
    "study.whatif": "Replay",
    "trace.trace": "Branches Draft Passage Question Trace",
    "triggers.call": "Call",
    "views.comparing": "compare",
    "views.pages": "page",
    "widgets.exploring": "browse explore",
    "widgets.tuning": "tune",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

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
