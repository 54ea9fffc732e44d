"""Runs as a page: means, causes, every question, and the answers to one side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dragin_lab.errors import MissingPackageError
from dragin_lab.study.runs import Runs
from dragin_lab.views.comparing import compare
from dragin_lab.views.html import clip, esc
from dragin_lab.views.pages import load_stylesheet, show_or_explain
from dragin_lab.views.pages import page as write_page

COLUMNS = [
    "dataset",
    "qid",
    "question",
    "method",
    "right",
    "cause",
    "answer",
    "gold",
    "em",
    "f1",
    "retrievals",
    "tokens",
]


def question_table(runs: Runs) -> pd.DataFrame:
    """A row for each question and method: outcome, cause of a wrong answer, what it took."""
    rows = runs.questions
    right = rows["right"].map({True: "✓", False: "✗"}).fillna("")
    return rows.assign(right=right, cause=rows["cause"].fillna(""))[COLUMNS]


def describe_answers(runs: Runs, dataset: str, qid: str, names: Sequence[str]) -> str:
    """The answers of methods to one question side by side, with why they are wrong and where they first part."""
    lines, traces = [], {}
    for name in names:
        record, line = runs.record(qid, name, dataset)
        cause = runs.cause(qid, name, dataset)
        lines.append(f"<b>{esc(name)}</b>: {esc(line['answer'])}" + (f" – {esc(cause.why)}" if cause else ""))
        if (kept := runs.kept_trace(record, qid)) is not None:
            traces[name] = kept
    head = "<br>".join(lines) + ("" if len(traces) == len(names) else "<br>A run kept no trace of it.")
    html = f'<div class="dl-out mathjax_ignore"><style>{load_stylesheet()}</style><p>{head}</p></div>'
    if len(traces) > 1:
        first, second = list(traces.values())[:2]
        html += compare([first, second], labels=list(traces)[:2]).html
        written = [line for line in first.diff(second).splitlines() if line.startswith(("steps", "text", "answer"))]
        differs = clip(next(iter(written), "nothing that was written"), 300)[0]
        html += f'<p class="mathjax_ignore">First difference: {esc(differs)}</p>'
    return html + "".join(show_or_explain(trace._repr_html_, "the trace") for trace in traces.values())


def browse_page(runs: Runs | str | Path | Iterable[str | Path], path: str | Path) -> Path:
    """Write runs as a page that opens offline: means, causes, and every question in a table to sort and search.

    Returns its path. Raises ``MissingPackageError`` without itables; otherwise as ``Runs.load`` and ``views.page``.
    """
    loaded = runs if isinstance(runs, Runs) else Runs.load(runs)
    try:
        from itables import options, to_html_datatable
        from itables.javascript import generate_init_offline_itables_html
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "a page of runs needs itables, which is not installed; run pip install 'dragin-lab[notebooks]'"
        ) from error
    table = to_html_datatable(
        question_table(loaded), connected=False, maxBytes=0, showIndex=False, column_filters="header"
    )
    table = generate_init_offline_itables_html(options.dt_bundle) + str(table)
    title = f"{', '.join(loaded.names)} on {', '.join(loaded.datasets)}"
    return write_page(path, loaded.table(), loaded.causes, _Html(title, table), loaded.plot(), title=title)


class _Html:
    """HTML that itables made."""

    def __init__(self, title: str, html: Any) -> None:
        self.title, self.html = title, str(html)

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.html}</div>'
