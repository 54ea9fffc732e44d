"""The batch explorer: every question of some runs in one offline page, from the table to two traces side by side.

All data is in the page as JSON; ``templates/browse.js`` draws the rows that are seen. ``widgets.browse`` shows the same
in a notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dragin_lab.almanac.facts import Labelled
from dragin_lab.run.lines import Line, readable
from dragin_lab.run.rundir import RunRecord
from dragin_lab.study.causes import CAUSES
from dragin_lab.study.runs import Runs
from dragin_lab.text import json_in_html
from dragin_lab.trace.kept import cut_off
from dragin_lab.trace.trace import Passage, Trace
from dragin_lab.views.frame import View, make_view
from dragin_lab.views.html import clip, esc, printable
from dragin_lab.views.methods import read_column
from dragin_lab.views.rendering import read_asset, render_template

PASSAGE_CHARS = 900  # of a passage in the page


def browse_page(runs: Runs | str | Path | Iterable[str | Path]) -> View:
    """The explorer as a view: ``save`` writes the page. Arguments and errors as for ``Runs.load``."""
    loaded = runs if isinstance(runs, Runs) else Runs.load(runs)
    data = Markup(json_in_html(browse_data(loaded)))
    card = partial(render_template, "browse.html", data=data, script=Markup(load_browse_script()), table=loaded.table())
    return _make_card(loaded, card, lambda: str(loaded.table()))


def browse_still(runs: Runs) -> View:
    """What stands in for the explorer where nothing can run it: the means and the causes."""
    text = partial("{}\n\n{}".format, runs.table(), runs.causes.to_string())
    return _make_card(runs, lambda: f'<pre class="plain head">{esc(text())}</pre>', text)


def _make_card(runs: Runs, card: Callable[[], str], text: Callable[[], str]) -> View:
    title = f"{', '.join(runs.names)} on {', '.join(runs.datasets)}"
    return make_view("The explorer", "runs", title, card, text, "browse")


def load_browse_script() -> str:
    """What draws the explorer: ``browse(root, data)``."""
    return read_asset("views/templates/common.js") + read_asset("views/templates/browse.js")


def browse_data(runs: Runs) -> dict[str, Any]:
    """Everything that the explorer shows, as plain data; passages once each."""
    passages: dict[tuple[str, str, str], int] = {}
    questions = []
    for dataset in runs.datasets:
        lines = {name: runs.lines(dataset, name) for name in runs.names}
        judge = runs.judge(dataset)
        for qid in dict.fromkeys(qid for of in lines.values() for qid in of):
            first = next(of[qid] for of in lines.values() if qid in of)
            label = judge.label(qid, first["question"])
            questions.append(
                {
                    "set": dataset, "id": qid, "q": printable(first["question"]), "gold": first["gold"],
                    "type": "" if label is None else label.type, "needs": _list_needs(label, judge.titles.get(qid, ())),
                    "by": [
                        _answer_data(runs, runs.run_of(dataset, name), lines[name][qid], name, dataset, passages)
                        if qid in lines[name] else None for name in runs.names
                    ],
                }
            )  # fmt: skip
    return {
        "methods": list(runs.names), "sets": list(runs.datasets), "causes": CAUSES,
        "questions": questions,
        "passages": [[id, printable(title), printable(clip(text, PASSAGE_CHARS)[0])] for id, title, text in passages],
    }  # fmt: skip


def _list_needs(label: Labelled | None, titles: Iterable[str]) -> list[list[str]]:
    """What a question needs: in words, and the id or else the title of the passage that says it."""
    if label is not None:
        return [[f"{f.relation} of {f.subject}: {f.value}", f.passage, ""] for f in label.facts]
    return [[title, "", title] for title in titles]


def _answer_data(
    runs: Runs, record: RunRecord, line: Line, name: str, dataset: str, passages: dict[tuple[str, str, str], int]
) -> dict[str, Any]:
    trace = runs.kept_trace(record, line["qid"])
    cause = runs.cause(line["qid"], name, dataset)
    answer = {
        "a": printable(line["answer"]), "em": line["em"], "f1": line["f1"], "n": line["retrievals"],
        "p": line["tokens"], "end": line["ended"],
    }  # fmt: skip
    if cause is not None:
        answer |= {"c": cause.kind, "why": printable(cause.why)}
    if not readable(line):
        answer["u"] = 1
    if trace is None:
        return answer | {
            "text": [[0, printable(line["text"]), []]],
            "steps": [{"q": q, "p": []} for q in line["queries"]],
        }
    return answer | _trace_data(trace, passages)


def _trace_data(trace: Trace, passages: dict[tuple[str, str, str], int]) -> dict[str, Any]:
    """Sentences, each with whether passages stood in its prompt and the retrievals that came in at it; retrievals."""
    column, steps = read_column(trace, most=len(trace.text)), []
    column.spans = column.spans or [(0, len(trace.text))]
    for _, step in column.came:
        assert step.query is not None
        why = step.decision.reason if step.decision is not None else ""
        found = [_number_passage(passage, passages) for passage in step.passages]
        said = {"why": printable(why), "cut": printable(cut_off(step))}
        asked = {"n": step.index + 1, "q": printable(step.query.sent), "p": found}
        steps.append(asked | {key: text for key, text in said.items() if text})
    sentences, numbers = [], {step.index: number for number, (_, step) in enumerate(column.came)}
    for at, (start, stop) in enumerate(column.spans):
        fresh = any(a < stop and start < b for a, b in column.fresh)
        came = [numbers[step.index] for _, step in column.arrivals_at(at)]
        sentences.append([int(fresh), printable(trace.text[start:stop]).strip(), came])
    return {"text": sentences, "steps": steps}


def _number_passage(passage: Passage, passages: dict[tuple[str, str, str], int]) -> int:
    return passages.setdefault((passage.id, passage.title, passage.text), len(passages))
