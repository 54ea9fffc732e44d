"""dragin_lab: see, token by token, why a language model retrieved. Public names load on first use."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes long to import: until the command line listens, Ctrl-C is Python's
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Cache": "run.cache",
    "Call": "triggers.call",
    "Draft": "trace.trace",
    "Gap": "core.formulators",
    "Formulator": "core.formulators",
    "Trigger": "core.trigger",
    "methods": "catalog.methods",
    "what": "catalog.methods",
    "whats": "catalog.methods",
    "when": "catalog.methods",
    "whens": "catalog.methods",
    "Cluster": "run.cluster",
    "Corpus": "retrieval.corpus",
    "BM25": "retrieval.bm25",
    "Branches": "trace.branches",
    "DraginLabError": "errors",
    "Elasticsearch": "retrieval.elasticsearch",
    "Exemplar": "core.prompts",
    "Lab": "run.lab",
    "LanguageModel": "engines.load",
    "Passage": "trace.trace",
    "Prompt": "trace.trace",
    "PromptTemplate": "core.prompts",
    "Question": "trace.trace",
    "Recipe": "run.worker",
    "Replay": "study.whatif",
    "Retriever": "core.episode",
    "Runs": "study.runs",
    "Step": "trace.trace",
    "Tantivy": "retrieval.bm25",
    "Trace": "trace.trace",
    "browse": "widgets.browsing",
    "calibration": "study.budgets",
    "capture": "engines.capture",
    "compare": "views.comparing",
    "explore": "widgets.exploring",
    "fit_trigger": "study.fitting",
    "load_exemplars": "data.exemplars",
    "method": "catalog.methods",
    "open_retriever": "retrieval.choose",
    "preset": "data.presets",
    "table": "study.paper_tables",
    "trigger": "study.fitting",
    "tune": "widgets.tuning",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dragin_lab' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"dragin_lab.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
