"""Asked, found, used, right: what the retrievals of whole runs were good for, from their
attributed traces.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm import tqdm

from dragin_lab.errors import SettingError
from dragin_lab.run.rundir import TRACES, RunRecord, trace_name
from dragin_lab.study.attribution import LEAST, RETRIEVALS, SURE, Attribution, is_attributed
from dragin_lab.study.leaving_out import attribute_trace
from dragin_lab.trace.file import SLIM, save_trace
from dragin_lab.warning import warn

if TYPE_CHECKING:
    from dragin_lab.run.setup import Setup


def attribute_run(setup: Setup, record: RunRecord, progress: bool = False) -> None:
    """Attribute the traces that a run kept, each once, and warn of the answers whose trace it
    did not keep.
    """
    answered = [line["id"] for line in record.predictions if line["ended"] != "error"]
    kept = [qid for qid in answered if record.has_trace(qid)]
    for qid in tqdm(
        kept, f"{record.folder.name}, attribution", leave=False, disable=None if progress else True
    ):
        trace = record.trace(qid)
        if not is_attributed(trace):
            path = record.folder / TRACES / trace_name(qid)
            slim = path.read_bytes().startswith(SLIM)
            trace.attributed = attribute_trace(
                setup, None, trace, sure=SURE, least=LEAST, attention=False, effect=False
            )
            save_trace(trace, path, hidden=True, slim=slim)
    if lost := len(answered) - len(kept):
        warn(
            f"{record.folder}: {lost} of {len(answered)} answers have no trace, so nobody knows"
            " what their retrievals gave; run with traces=True, which keeps every trace"
        )


def attributed_rows(runs: Any, record: RunRecord, id: str) -> list[dict[str, Any]] | None:
    """The retrievals of an answer as plain data; None where it is not attributed. ``runs`` are
    its ``Runs``.
    """
    if id in record.attributed:
        return record.attributed[id]
    trace = runs.kept_trace(record, id) if record.has_trace(id) else None
    if trace is None or not is_attributed(trace):
        return None
    gold = runs.cause_finder(record.config["dataset"]["name"]).passages_of(id, trace.question.text)
    rows: list[dict[str, Any]] = json.loads(
        Attribution(trace, gold or None).retrievals.to_json(orient="records")
    )
    return rows


def list_retrievals(runs: Any) -> pd.DataFrame:
    rows, attributed = [], 0
    for answer in runs.outcomes.itertuples():
        record, _ = runs.record(answer.id, answer.method, answer.dataset)
        known = {
            name: getattr(answer, name)
            for name in ("dataset", "id", "method", "question", "answer", "right")
        }
        given = attributed_rows(runs, record, answer.id)
        attributed += given is not None
        rows += [known | row for row in given or ()]
    if not attributed:
        raise SettingError(
            "no answer of these runs is attributed; lab.run(questions, methods, ...,"
            " attribute=True)"
        )
    columns = ["dataset", "id", "method", "question", "answer", "right", *RETRIEVALS]
    frame = pd.DataFrame(rows, columns=columns).astype(RETRIEVALS | {"right": "boolean"})
    frame.attrs["attributed"] = attributed
    return frame


def count_funnel(retrievals: pd.DataFrame, outcomes: pd.DataFrame, by: str) -> pd.DataFrame:
    """``Runs.funnel_table`` of the rows of ``list_retrievals``; ``outcomes`` has the tokens of
    each answer.
    """
    at, rows = ["dataset", "id", "method"], []
    for name, asked in retrievals.groupby(by, sort=False):
        answers, used = asked[at].drop_duplicates(), asked[asked["used"]]
        shares = {
            "found": asked["found"],
            "holds gold": asked["holds gold"],
            "used": asked["used"],
            "found and used": asked["found"] & asked["used"],
            "right, of the used": used["right"],
            "lost": asked["lost"],
        }
        each = {
            "retrievals a used one": len(asked),
            "tokens a used one": outcomes.merge(answers)["tokens"].sum(),
        }
        rows.append(
            {by: name, "questions": len(answers), "asked": len(asked)}
            | {what: _share(of) for what, of in shares.items()}
            | {
                what: count / len(used) if len(used) else float("nan")
                for what, count in each.items()
            }
        )
    return pd.DataFrame(rows).set_index(by)


def _share(of: pd.Series) -> float:
    """The part of what is known that is true; NaN where nothing is known."""
    known = of.dropna()
    return float(known.mean()) if len(known) else float("nan")
