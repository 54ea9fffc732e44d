"""``explore`` with branches: choose another token, query, set of passages or decision, and see what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import traitlets

from dragin_lab.checks import instance
from dragin_lab.errors import SettingError
from dragin_lab.run.branch import stream_branch
from dragin_lab.run.change import find_text
from dragin_lab.run.drivers import TokenWritten
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import describe_error
from dragin_lab.trace.branches import Branches
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views.frame import View
from dragin_lab.views.heatmaps import heatmap
from dragin_lab.views.html import printable, show_or_explain
from dragin_lab.views.methods import MAX_TRACES, comparison_card, side_by_side
from dragin_lab.views.sections import judge_answer, sign_verdict
from dragin_lab.widgets.base import Running, load_script, load_style
from dragin_lab.widgets.explorer import check_place, explorer_data

_IDLE = {"busy": False, "status": "", "error": "", "shown": 0}


class ExploreBranches(Running):
    """The widget. ``tree`` has the trace and its branches; ``lab`` writes more, where there is one."""

    _esm = load_script("branching", draws="explorer")
    _css = load_style("methods")
    #: For each trace of the tree what ``explorer_data`` has, and how it stands to the others; it grows with the tree.
    nodes: Any = traitlets.List().tag(sync=True)
    #: {"busy", "status", "error", "shown"}: whether a branch is being written, and the number of the trace to show
    state: Any = traitlets.Dict(_IDLE).tag(sync=True)

    def __init__(self, tree: Branches, lab: Lab | None = None, *, branch: int = 0, **place: Any) -> None:
        self.tree = instance("tree", tree, Branches, "give a Branches, such as Branches.of(trace)")
        self.lab = None if lab is None else instance("lab", lab, Lab, "give a dl.Lab")
        if not 0 <= branch < len(self.tree):
            raise SettingError(f"branch={branch}: the tree has traces 0 to {len(self.tree) - 1}; give one of them")
        nodes = [self._node(number) for number in range(len(self.tree))]
        if at := check_place(nodes[branch]["texts"], **place):
            nodes[branch]["at"] = at
        data = {"error": "", "live": self.lab is not None}
        super().__init__(data=data, nodes=nodes, state=_IDLE | {"shown": branch})

    def _node(self, number: int) -> dict[str, Any]:
        trace, parent = self.tree[number], self.tree.parent(number)
        node = explorer_data(trace) | {"steps": [_step_data(step) for step in trace.steps]}
        place = str(trace.parting) if trace.parting is not None and number else "the question"
        node["node"] = {
            "level": len(self.tree.path(number)),
            "place": printable(place),
            "answer": printable(trace.answer or "no answer"),
            "verdict": sign_verdict(*judge_answer(trace)),
            "beside": "",
        }
        if parent is not None:
            pair, labels = [self.tree[parent], trace], ["original" if parent == 0 else "parent", "branch"]
            node["node"]["beside"] = show_or_explain("The comparison", partial(comparison_card, pair, labels), str)
            _mark_parting(node, trace)
        return node

    # -- the controls -------------------------------------------------------------------------------------------------

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        try:
            if kind == "branch":
                self.branch(int(content["trace"]), **self._read_change(int(content["trace"]), content["change"]))
            elif kind == "stop":
                self.stop()
        except Exception as error:  # noqa: BLE001 - in a callback an error would be seen in a log only
            self._update(busy=False, error=describe_error(error))

    def _read_change(self, number: int, sent: Mapping[str, Any]) -> dict[str, Any]:
        """The change that the front end asks for: an alternative by its rank, passages by their ids."""
        change = {key: value for key, value in sent.items() if key not in ("rank", "keep", "add")}
        trace = self.tree[number]
        if "rank" in sent:
            text, _ = find_text(trace, change["step"] - 1, change["source"])
            assert text is not None
            change["to"] = int(text.alternative_ids[change["token"] - 1, sent["rank"]])
        if "keep" in sent:
            kept = [passage for passage in trace.steps[change["step"] - 1].passages if passage.id in sent["keep"]]
            change["passages"] = [*kept, *([sent["add"]] if str(sent.get("add", "")).strip() else [])]
        return change

    def branch(self, number: int = 0, **change: Any) -> None:
        """Begin to write a branch of a trace of the tree, as the controls do; ``change`` as for ``Lab.branch``.

        Returns at once; see ``wait``. Raises ``SettingError`` as ``Lab.branch``, without a lab, and while another
        branch is being written.
        """
        if self.lab is None:
            raise SettingError("without a lab nothing new can be written; give one: dl.explore(trace, lab=lab)")
        if self.busy:
            raise SettingError("a branch is being written; stop it first, or wait for it")
        events = stream_branch(self.lab, self.tree[number], **change)
        self._update(busy=True, status="Branching …", error="")
        self._begin(self._work, events)

    def wait(self, timeout: float | None = None) -> Branches:
        super().wait(timeout)
        return self.tree

    def _update(self, **changes: Any) -> None:
        self.state = {**self.state, **changes}

    def _work(self, events: Any) -> None:
        error, shown = "", self.state["shown"]
        try:
            for count, event in enumerate(events):
                if self._stop.is_set():
                    break
                if isinstance(event, TokenWritten) and count % 10 == 9:
                    self._update(status=f"Branching … {events.trace.counters['generated']} tokens")
        except Exception as failed:  # noqa: BLE001 - in a thread an error would be seen in a log only
            error = describe_error(failed)
        finally:
            events.close()
            stopped = events.trace.ended == "cancelled"
            if not error and not stopped:
                branch = self.tree.add(events.trace)
                shown = next(i for i, trace in enumerate(self.tree) if trace is branch)
                if shown == len(self.nodes):
                    self.nodes = [*self.nodes, self._node(shown)]
            self._update(busy=False, status="Stopped; nothing was added." * stopped, error=error, shown=shown)

    # -- without a front end ------------------------------------------------------------------------------------------

    def static(self) -> View:
        if len(self.tree) == 1:
            return heatmap(self.tree[0])
        names = ["original", *(str(trace.parting) for trace in self.tree.traces[1:MAX_TRACES])]
        return side_by_side(self.tree.traces[:MAX_TRACES], labels=names)

    def _recorded(self) -> dict[str, Any]:
        return {"data": self.data | {"live": False}, "nodes": self.nodes, "state": self.state}


def _step_data(step: Step) -> dict[str, Any]:
    """What of a step can be changed beside its tokens."""
    judged = step.draft is not None and step.decision is not None
    return {
        "query": None if step.query is None else printable(step.query.text),
        "passages": [[p.id, printable(p.title), printable(p.text)] for p in step.passages],
        "retrieve": step.decision.retrieve if judged and step.decision is not None else None,
    }


def _mark_parting(node: dict[str, Any], trace: Trace) -> None:
    """Mark the token where a branch parts; a query, passages and a decision belong to the step's first text."""
    parting = trace.parting
    assert parting is not None
    names = (parting.source,) if parting.kind == "token" else ("draft", "continuation")
    text = next((t for t in node["texts"] if t["step"] - 1 == parting.step and t["name"] in names), None)
    if text is None:  # the extraction is no text of the explorer
        return
    node["at"] = {"step": text["step"], "text": text["name"]}
    cell = next((c for c in text["cells"] if parting.token is not None and c["n"] > parting.token), None)
    if cell is not None:
        cell["x"] += " parted"
        cell["y"] = "the branch parts here: "
        node["at"]["token"] = cell["n"]
