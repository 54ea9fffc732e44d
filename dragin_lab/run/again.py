"""Answer a question again: with another method out of a cache, or with the settings that a run's ``run.json`` holds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from dragin_lab.catalog.methods import restore_method
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.errors import DraginLabError
from dragin_lab.run.cached import CacheAlone, is_cacheable
from dragin_lab.run.lab import Lab
from dragin_lab.run.lines import Line, prediction
from dragin_lab.run.rundir import RunError, RunRecord
from dragin_lab.run.serving import describe_retriever
from dragin_lab.trace.frames import differences
from dragin_lab.trace.trace import Question, Trace

#: Of a model and a retriever, what says that they are those of a run.
_SAME = {
    "model": ("weights_sha256", "architecture", "dtype", "attention", "layer", "heads", "decoding",
              "generation_config"),
    "retriever": ("kind", "corpus_fingerprint", "k1", "b"),
}  # fmt: skip


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


def answer_again(record: RunRecord, line: Line, opened: dict[str, Any]) -> Trace:
    """The trace of a prediction line, written again; a warning says so, and where the answer is not the same.

    ``opened`` keeps the models and passages for the next call, which may be about another run of the same.

    Raises ``RunError`` where the model or the passages are not those of the run, or cannot be found.
    """
    config = record.config
    method = restore_method(config["method"])
    lm = _open_part("model", record, opened)
    retriever = _open_part("retriever", record, opened) if method.retrieves else None
    warnings.warn(f"{record.folder}: no trace of {line['qid']} was kept; it is answered again", stacklevel=3)
    lab = Lab(lm, retriever=retriever, exemplars=template_of(config), seed=config["seed"])
    answered = lab.ask(Question(line["qid"], line["question"], tuple(line["gold"])), method)
    unasked = {key: line[key] for key in line.keys() & {"readable", "metrics"}}
    if changes := differences(line, prediction(answered) | unasked):
        warnings.warn(f"{line['qid']}: answered otherwise than in the run ({changes[0]})", stacklevel=3)
    return answered


def _open_part(kind: str, record: RunRecord, opened: dict[str, Any]) -> Any:
    """The "model" or the "retriever" of a run."""
    recorded = record.config[kind]
    key = json.dumps([kind, recorded], sort_keys=True)
    if key not in opened:
        if kind == "model" and "served_by" in recorded:
            raise RunError(
                f"{record.folder}: {recorded['model']} wrote behind a server, and a run does not record where, so no "
                "trace can be written again; keep traces with --traces"
            )
        part = getattr(open_lab(record.config), kind)
        now = part.provenance() if kind == "model" else describe_retriever(part) or {}
        then, today = ({name: of.get(name, recorded.get(name)) for name in _SAME[kind]} for of in (recorded, now))
        if changes := differences(then, today):
            raise RunError(
                f"{record.folder}: the {kind} is not the run's any more ({'; '.join(changes[:3])}), so no trace can be "
                "written again; keep traces with --traces"
            )
        opened[key] = part
    return opened[key]


def template_of(config: Mapping[str, Any]) -> PromptTemplate:
    """The prompt that a run was asked with, without custom metrics, of which it records the names.

    Raises ``SettingError`` for a custom layout or answer rule, of which it records the name, too.
    """
    recorded = config["template"]
    exemplars = tuple(Exemplar(**one) for one in recorded["exemplars"])
    return PromptTemplate(**recorded | {"metrics": (), "exemplars": exemplars})


def open_lab(config: Mapping[str, Any]) -> Lab:
    """A lab with the model and the passages of a run, which are opened when they are first needed."""
    model, passages = config["model"], config["retriever"] or {}
    return Lab(
        model["model"],
        passages.get("folder") or passages.get("corpus"),
        retriever=":".join(filter(None, (passages.get("kind"), passages.get("model")))) or None,
        sample=model.get("decoding") == "sample",
        **{key: model[key] for key in ("dtype", "layer", "heads") if model.get(key) is not None},
    )
