"""Asked, found, used, right: what the retrievals of whole runs were good for, from their
attributed traces.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm import tqdm

from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import TRACES, Facts, RunRecord, trace_name
from dragin_lab.study.attribution import LEAST, RETRIEVALS, SURE, Attribution, is_attributed
from dragin_lab.study.leaving_out import attribute_trace
from dragin_lab.trace.file import SLIM, save_trace
from dragin_lab.warning import warn

if TYPE_CHECKING:
    from dragin_lab.run.setup import Setup


_ANSWER = ("dataset", "id", "method", "question", "answer", "right")


def attribute_run(setup: Setup, record: RunRecord, progress: bool) -> None:
    """Attribute the traces that a run kept, each once, and warn of the answers whose trace it
    did not keep.
    """
    answered = [line["id"] for line in record.sound]
    kept = [qid for qid in answered if record.has_trace(qid)]
    quiet = None if progress else True
    for qid in tqdm(kept, f"{record.label}, attribution", leave=False, disable=quiet):
        trace = record.trace(qid)
        if not is_attributed(trace):
            path = record.folder / TRACES / trace_name(qid)
            slim = path.read_bytes().startswith(SLIM)
            trace.attributed = attribute_trace(
                setup, None, trace, sure=SURE, least=LEAST, attention=False, effect=False
            )
            save_trace(trace, path, hidden=True, slim=slim)
    lost = len(answered) - len(kept)
    if lost:
        warn(
            f"{record.folder}: {lost} of {len(answered)} answers have no trace, so nobody knows"
            " what their retrievals gave; run with traces=True, which keeps every trace"
        )


def attributed_rows(runs: Any, record: RunRecord, id: str) -> list[Facts] | None:
    """The retrievals of an answer as plain data; None where it is not attributed. ``runs`` are
    its ``Runs``.
    """
    if id in record.attributed:
        return record.attributed[id]
    trace = runs.kept_trace(record, id) if record.has_trace(id) else None
    if trace is None or not is_attributed(trace):
        return None
    rows: list[Facts] = json.loads(Attribution(trace).retrievals.to_json(orient="records"))
    return rows


def list_retrievals(runs: Any) -> pd.DataFrame:
    rows = []
    attributed = 0
    for answer in runs.outcomes.itertuples():
        record, _ = runs.record(answer.id, answer.method, answer.dataset)
        known = {name: getattr(answer, name) for name in _ANSWER}
        asked = attributed_rows(runs, record, answer.id)
        if asked is not None:
            attributed += 1
            rows += [known | row for row in asked]
    if not attributed:
        raise SettingError(
            "no answer of these runs is attributed; lab.run(questions, methods, ...,"
            " attribute=True)"
        )
    frame = pd.DataFrame(rows, columns=[*_ANSWER, *RETRIEVALS])
    frame = frame.astype(RETRIEVALS | {"right": "boolean"})
    frame.attrs["attributed"] = attributed
    return frame


def count_funnel(retrievals: pd.DataFrame, outcomes: pd.DataFrame, by: str) -> pd.DataFrame:
    """``Runs.funnel_table`` of the rows of ``list_retrievals``; ``outcomes`` has the tokens of
    each answer.
    """
    at = ["dataset", "id", "method"]
    rows = []
    for name, asked in retrievals.groupby(by, sort=False):
        answers = asked[at].drop_duplicates()
        used = asked[asked["used"]]
        count = len(used) or math.nan
        rows.append(
            {
                by: name,
                "questions": len(answers),
                "asked": len(asked),
                "found": _share(asked["found"]),
                "holds gold": _share(asked["holds gold"]),
                "used": _share(asked["used"]),
                "found and used": _share(asked["found"] & asked["used"]),
                "right, of the used": _share(used["right"]),
                "lost": _share(asked["lost"]),
                "retrievals a used one": len(asked) / count,
                "tokens a used one": outcomes.merge(answers)["tokens"].sum() / count,
            }
        )
    return pd.DataFrame(rows).set_index(by)


def _share(marks: pd.Series) -> float:
    """The part of what is known that is true; NaN where nothing is known."""
    return marks.astype("float64").mean()
