"""One answer of a finished run again, with the settings that ``run.json`` records."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from dragin_lab.catalog.methods import restore_method
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.errors import DraginLabError
from dragin_lab.run.cached import CacheAlone, is_cacheable
from dragin_lab.run.cluster import Recipe
from dragin_lab.run.lab import Lab
from dragin_lab.run.lines import Line, prediction
from dragin_lab.run.rundir import RunError, RunRecord
from dragin_lab.run.serving import describe_retriever
from dragin_lab.trace.frames import differences
from dragin_lab.trace.trace import Question, Trace

#: Of a model and a retriever, what says that they are those of a run.
_SAME = ("weights_sha256", "architecture", "dtype", "attention", "layer", "heads", "decoding", "generation_config")


def from_cache(lab: Lab, trace: Trace, method: Method) -> Trace | None:
    """The episode of a trace's question with another method, out of the lab's cache; None where that lacks a draft.

    None, too, where the trace was made with another model, prompt or retriever than the lab's.
    """
    if lab.cache is None or not is_cacheable(lab.model):
        return None
    try:
        answered = lab.replace(model=CacheAlone(lab.model, lab.cache), retriever=lab.retriever_for(method)).ask(
            trace.question, method
        )
    except DraginLabError:  # not cached, or an episode that fails: its answer is not known
        return None
    same = ("weights_sha256", "template", "retriever", "seed")
    return answered if all(answered.provenance.get(key) == trace.provenance.get(key) for key in same) else None


class Rerun:
    """A run's model, passages and prompt, opened when first needed, and shared with ``others`` of the same kind."""

    def __init__(self, record: RunRecord, others: Iterable[Rerun] = ()) -> None:
        self.record = record
        self._others = list(others)
        self._opened: dict[str, Any] = {}

    def trace(self, line: Line) -> Trace:
        """The trace of a prediction line, written again; a warning says so, and where the answer is not the same.

        Raises ``RunError`` where the model or the passages are not those of the run, or cannot be found.
        """
        config = self.record.config
        method = restore_method(config["method"])
        lm = self._part("model")
        retriever = self._part("retriever") if method.retrieves else None
        question = Question(line["qid"], line["question"], tuple(line["gold"]))
        warnings.warn(f"{self.record.folder}: no trace of {line['qid']} was kept; it is answered again", stacklevel=3)
        lab = Lab(lm, retriever=retriever, exemplars=template_of(config), seed=config["seed"])
        answered = lab.ask(question, method)
        unasked = {key: line[key] for key in line.keys() & {"readable", "metrics"}}
        if changes := differences(line, prediction(answered) | unasked):
            warnings.warn(f"{line['qid']}: answered otherwise than in the run ({changes[0]})", stacklevel=3)
        return answered

    def _part(self, kind: str) -> Any:
        if kind not in self._opened:
            recorded = self.record.config[kind]
            like = (one._opened.get(kind) for one in self._others if one.record.config[kind] == recorded)
            opened = next(filter(None, like), None) or getattr(recipe_of(self.record.config).open(), kind)
            _hold_to(self.record, kind, recorded, opened)
            self._opened[kind] = opened
        return self._opened[kind]


def template_of(config: Mapping[str, Any]) -> PromptTemplate:
    """The prompt that a run was asked with, without custom metrics, of which it records the names.

    Raises ``SettingError`` for a custom layout or answer rule, of which it records the name, too.
    """
    recorded = config["template"]
    exemplars = tuple(Exemplar(**one) for one in recorded["exemplars"])
    return PromptTemplate(**recorded | {"metrics": (), "exemplars": exemplars})


def recipe_of(config: Mapping[str, Any]) -> Recipe:
    """How the model and the passages of a run are opened."""
    model, passages = config["model"], config["retriever"] or {}
    name, corpus = model["model"], passages.get("corpus")
    return Recipe(
        name,
        sample=model.get("decoding") == "sample",
        retriever=":".join(filter(None, (passages.get("kind"), passages.get("model")))) or None,
        corpus=passages.get("folder") or corpus,
        **{key: model[key] for key in ("dtype", "layer", "heads") if model.get(key) is not None},
    )


def _hold_to(record: RunRecord, kind: str, recorded: Mapping[str, Any], opened: Any) -> None:
    now = opened.provenance() if kind == "model" else describe_retriever(opened) or {}
    keys = _SAME if kind == "model" else ("kind", "corpus_fingerprint", "k1", "b")
    if changes := differences(*({key: one.get(key, recorded.get(key)) for key in keys} for one in (recorded, now))):
        raise RunError(
            f"{record.folder}: the {kind} is not the run's any more ({'; '.join(changes[:3])}), so no trace can be "
            "written again; keep traces with --traces"
        )
