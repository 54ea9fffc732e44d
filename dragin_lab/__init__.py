"""dragin_lab: see, piece by piece, why a language model retrieved. Public names load on first use."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Continuation": "trace",
    "Cluster": "cluster",
    "Corpus": "corpus",
    "BM25": "retrieval.bm25",
    "BM25S": "retrieval.bm25s_index",
    "DraginLabError": "errors",
    "Elasticsearch": "retrieval.elasticsearch",
    "Exemplar": "prompts",
    "LanguageModel": "lm.load",
    "Milvus": "retrieval.milvus",
    "Passage": "trace",
    "Prompt": "trace",
    "PromptTemplate": "prompts",
    "Question": "trace",
    "Recipe": "cluster_worker",
    "Replay": "replay",
    "Step": "trace",
    "Store": "store",
    "Trace": "trace",
    "ask_live": "widgets",
    "capture": "lm.capture",
    "compare": "widgets",
    "explore": "widgets",
    "load_exemplars": "exemplars",
    "method": "methods",
    "open_retriever": "retrieval.choose",
    "preset": "presets",
    "run": "drivers",
    "run_benchmark": "bench",
    "run_many": "drivers",
    "stream": "drivers",
    "sweep": "sweeps",
    "table": "tables.table",
    "tuner": "widgets",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dragin_lab' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dragin_lab.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
