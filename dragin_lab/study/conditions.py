"""What must be the same in runs that stand side by side, and what is said below a table where something is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from dragin_lab.errors import SettingError
from dragin_lab.run.lines import PEAK, Line, Timing
from dragin_lab.run.rundir import TIMINGS, RunRecord, read_lines

#: A run of more questions than this in which the trigger never fired is warned of.
FEW = 20
At = tuple[str, str]  # data set and method
_ASKED = ("question", "gold")
_NAMED = 3  # ids and methods that a message names


def check_same_questions(runs: Mapping[str, Mapping[str, Line]]) -> None:
    """Refuse runs that answered other questions, or were scored against other gold answers, under the same ids.

    ``runs`` are prediction lines by question id, by what the run is called. Raises ``SettingError`` that names the
    first ids.
    """
    first: dict[str, tuple[str, Line]] = {}
    for name, lines in runs.items():
        differing = []
        for qid, line in lines.items():
            other, known = first.setdefault(qid, (name, line))
            if any(known.get(entry) != line.get(entry) for entry in _ASKED):
                differing.append((qid, other, known, line))
        if differing:
            qid, other, known, line = differing[0]
            entry = next(entry for entry in _ASKED if known.get(entry) != line.get(entry))
            raise SettingError(
                f"{other} and {name} are not of the same questions: {_listed([one[0] for one in differing])} "
                f"differ{'s' if len(differing) == 1 else ''}, for {qid!r} the {entry} is {known.get(entry)!r:.80} and "
                f"{line.get(entry)!r:.80}; give runs of the same file"
            )


def differing_conditions(records: Mapping[At, RunRecord]) -> list[str]:
    """Lines on models, passages and exemplars that are not the same in all runs of a data set."""
    by_dataset: dict[str, dict[str, Mapping[str, Any]]] = {}
    for (dataset, name), record in records.items():
        by_dataset.setdefault(dataset, {})[name] = record.config
    lines = (
        _difference(kind, {name: part for name, config in configs.items() if (part := take(config)) is not None})
        for configs in by_dataset.values()
        for kind, take in _CONDITIONS.items()
    )
    return [line for line in dict.fromkeys(lines) if line]


def never_fired(records: Mapping[At, RunRecord]) -> list[str]:
    """A warning for each run of more than ``FEW`` questions in which no score was above the threshold."""
    lines = []
    for (dataset, name), record in records.items():
        theta = record.config["method"].get("threshold")
        sound = [line for line in record.predictions if line["ended"] != "error"]
        if theta is None or len(sound) <= FEW or any(line["retrievals"] for line in sound):
            continue
        timings = read_lines(record.folder / TIMINGS, Timing)[0].values()
        peaks = [line[PEAK] for line in timings if line.get(PEAK) is not None]
        highest = f"; the highest was {max(peaks):.3g}" if peaks else ""
        lines.append(
            f"warning: {name} never retrieved: no score in {len(sound):,} questions ({dataset}) was above the "
            f"threshold of {theta:g}{highest}. Choose it by what it costs: "
            'dl.method(..., threshold="budget:1.5", calibration=...)'
        )
    return lines


def _difference(kind: str, parts: Mapping[str, tuple[str, str]]) -> str:
    """``parts``: by method its (text, identity)."""
    by_identity: dict[str, list[str]] = {}
    for name, (_, identity) in parts.items():
        by_identity.setdefault(identity, []).append(name)
    if len(by_identity) < 2:
        return ""
    texts = {identity: parts[names[0]][0] for identity, names in by_identity.items()}
    groups = []
    for identity, names in by_identity.items():
        same_text = list(texts.values()).count(texts[identity]) > 1
        told_apart = f" ({sha256(identity.encode()).hexdigest()[:6]})" if same_text else ""
        groups.append(f"{_listed(names)}: {texts[identity]}{told_apart}")
    return f"{kind} differ: " + "; ".join(groups)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _model(config: Mapping[str, Any]) -> tuple[str, str]:
    model = config["model"]
    identity = [model.get(key) for key in ("model", "weights_sha256", "dtype", "quantization")]
    return str(model.get("model")), json.dumps(identity)


def _passages(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """None for a method that never searches."""
    if (used := config.get("retriever")) is None:
        return None
    identity = {key: value for key, value in used.items() if key != "chosen"}  # who chose it changes nothing
    named = " ".join(str(used[key]) for key in ("kind", "model", "corpus") if used.get(key))
    return named or "unnamed", json.dumps(identity, sort_keys=True)


def _exemplars(config: Mapping[str, Any]) -> tuple[str, str]:
    exemplars = config["template"]["exemplars"]
    return str(len(exemplars)), json.dumps(exemplars, sort_keys=True)


_CONDITIONS = {"models": _model, "passages": _passages, "exemplars": _exemplars}
