"""Runs side by side: what must be the same in all of them, and remarks where it is not."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import choice, shown
from dragin_lab.core.fingerprint import list_changes
from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import LEAST, PEAK, Line, RunRecord
from dragin_lab.text import write_compared

if TYPE_CHECKING:
    import pandas as pd

#: A run of more questions than this in which the trigger never fired, or at every draft, is warned
#: of.
FEW = 20
At = tuple[str, str]  # data set and method
_NAMED = 3  # ids and methods that a message names


def check_same_golds(records: Mapping[At, RunRecord]) -> None:
    """Refuse runs that were scored against other gold answers on the same questions of a file.

    Raises ``SettingError`` that names the first ids.
    """
    first: dict[tuple[str, str, str], tuple[str, Line]] = {}  # by data set, id and question
    for (_, name), record in records.items():
        differing = []
        for line in record.predictions:
            at = str(record.config["dataset"]["name"]), line["id"], line["question"].strip()
            other, known = first.setdefault(at, (name, line))
            if set(known["gold"]) != set(line["gold"]):
                differing.append((line["id"], other, known["gold"], line["gold"]))
        if differing:
            qid, other, theirs, own = differing[0]
            named = list_first([qid for qid, *_ in differing])
            raise SettingError(
                f"{other!r} and {name!r} were scored against other gold answers: those of {named}"
                f" differ, for {qid!r} they are {theirs!r:.80} and {own!r:.80}; give runs of the"
                " same file"
            )


def list_differences(records: Mapping[At, RunRecord]) -> list[str]:
    """Lines on models, passages and exemplars that are not the same in all runs of a data set, and
    on your own metrics that are not defined alike in all runs.
    """
    kinds = {
        "models": identify_model,
        "passages": identify_passages,
        "exemplars": _identify_exemplars,
    }
    lines = []
    datasets = dict.fromkeys(dataset for dataset, _ in records)
    for dataset, (kind, read) in product(datasets, kinds.items()):
        where = f" on {dataset}" if len(datasets) > 1 else ""
        configs = {name: record.config for (on, name), record in records.items() if on == dataset}
        groups = _group_alike({name: read(config) for name, config in configs.items()})
        if len(groups) > 1:
            lines.append(f"{kind} differ{where}: {'; '.join(groups)}")
    return [*dict.fromkeys(lines), *_list_other_metrics(records)]


def _group_alike(parts: Mapping[str, tuple[str, str] | None]) -> list[str]:
    """Which methods have one part, and how it is called; a part is a name and what it is."""
    alike: dict[str, tuple[str, list[str]]] = {}
    for method, part in parts.items():
        if part is not None:
            name, identity = part
            alike.setdefault(identity, (name, []))[1].append(method)
    groups: list[str] = []
    called: set[str] = set()
    for name, methods in alike.values():
        another = " (another)" if name in called else ""
        groups.append(f"{list_first(methods)}: {name}{another}")
        called.add(name)
    return groups


def _list_other_metrics(records: Mapping[At, RunRecord]) -> list[str]:
    definitions: dict[str, dict[At, Any]] = {}
    for at, record in records.items():
        for label, node in record.config.get("given", {}).items():
            if label.startswith("metric "):
                definitions.setdefault(label, {})[at] = node
    lines = []
    for label, nodes in definitions.items():
        (first, before), *others = nodes.items()
        changes = {at: list_changes(before, node, label) for at, node in others}
        differing = [at for at in changes if changes[at]]
        if differing:
            names = list_first([f"{method} on {dataset}" for dataset, method in differing])
            change = changes[differing[0]][0]
            lines.append(
                f"{label} is not defined in {names} as in {first[1]} on {first[0]} ({change}): its"
                " means are not of one measure"
            )
    return lines


def list_idle_thresholds(records: Mapping[At, RunRecord]) -> list[str]:
    """A warning for each run of more than ``FEW`` questions whose threshold lies above all
    scores, or below all.
    """
    lines, hint = [], "Choose it by what it costs: threshold=lab.budget(questions, 1.5)"
    for (dataset, name), record in records.items():
        theta = record.config["method"].get("threshold")
        sound = [line for line in record.predictions if line["ended"] != "error"]
        if theta is None or len(sound) <= FEW:
            continue
        asked = f"{len(sound):,} questions ({dataset})"
        peaks, least = (
            [line[name] for line in record.timings.values() if line.get(name) is not None]
            for name in (PEAK, LEAST)
        )
        if not any(line["retrievals"] for line in sound):
            peak, limit = write_compared(max(peaks, default=theta), theta)
            highest = f"; the highest was {peak}" if peaks else ""
            lines.append(
                f"warning: {name} never retrieved: no score in {asked} was above the threshold of"
                f" {limit}{highest}. " + hint
            )
        elif (
            all(line["retrievals"] for line in sound)
            and len(least) >= len(sound)
            and min(least) > theta
        ):
            lowest, limit = write_compared(min(least), theta)
            lines.append(
                f"warning: {name} retrieved at every draft of {asked}: in each a score was above"
                f" the threshold of {limit}, at least {lowest}. {hint}"
            )
    return lines


def list_first(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (
        f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    )


def identify_model(config: Mapping[str, Any]) -> tuple[str, str]:
    model = config["model"]
    identity = [model.get(key) for key in ("model", "weights_sha256", "dtype", "quantization")]
    return str(model.get("model")), json.dumps(identity)


def identify_passages(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """None for a method that never searches."""
    if (used := config.get("retriever")) is None:
        return None
    # who chose it changes nothing
    identity = {key: value for key, value in used.items() if key != "chosen"}
    named = " ".join(str(used[key]) for key in ("kind", "model", "corpus") if used.get(key))
    return named or "unnamed", json.dumps(identity, sort_keys=True)


def _identify_exemplars(config: Mapping[str, Any]) -> tuple[str, str]:
    template = config["template"]
    exemplars = template["exemplars"]
    own = f"{len(exemplars)} of your own" if exemplars else "none"
    name = template.get("chosen") or own
    form = template.get("form", "reasoning")
    if form != "reasoning":
        name += f" (form {form})"
    return name, json.dumps(exemplars, sort_keys=True)


# -- questions that were chosen --------------------------------------------------------------------

#: The columns of ``Runs.questions`` that depend on what a comparison tests.
ANSWER_COLUMNS = ("right", "em", "f1", "answer", "readable", "cause", "why")


def remark_selection(
    expressions: Sequence[str], choosing: Iterable[str], tested: Iterable[str]
) -> list[str]:
    """The lines below a table of the questions that ``expressions`` chose, where ``tested`` methods
    would be compared.

    A choice by the answers of the ``choosing`` methods does not measure a method: among the
    questions that it got wrong it has no exact match, whatever it is compared with.
    """
    lines = [f"only questions chosen by: {'; '.join(expressions)}"] if expressions else []
    if own := sorted(set(choosing) & set(tested)):
        lines.append(
            f"no test: what {' and '.join(own)} answered chose the questions, so a difference here"
            " says how they were chosen, not which method is better; test on all questions, or on"
            " those of a type"
        )
    return lines


def find_names(expression: str) -> set[str]:
    try:
        nodes = ast.walk(ast.parse(expression.strip(), mode="eval"))
    except SyntaxError:  # pandas accepts names between backticks
        return set(re.findall(r"\w+", expression))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def evaluate(frame: pd.DataFrame, expression: str) -> pd.Series:
    """Which rows of ``frame`` an expression is true for; a missing value counts as false."""
    from pandas.errors import UndefinedVariableError

    try:
        mask = frame.eval(expression)
        return mask.astype("boolean").fillna(False).astype(bool)
    except UndefinedVariableError as error:
        choice("column", str(error).split("'")[1], frame.columns)
        raise
    except Exception as error:  # noqa: BLE001 - pandas raises whatever an expression meets
        raise SettingError(
            f"{shown(expression)} cannot be read ({shown(str(error))}); write an expression over "
            f"{', '.join(frame.columns)}, such as 'em < 1 and retrievals > 2'"
        ) from None
