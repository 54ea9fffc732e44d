"""``explore``: an episode token by token, and, with its lab, what if: another token, query, passages or decision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as ipw
import plotly.graph_objects as go

from dragin_lab.checks import instance, position
from dragin_lab.errors import SettingError
from dragin_lab.files import as_path
from dragin_lab.run.branch import stream_branch
from dragin_lab.run.lab import Lab
from dragin_lab.study.spans import Spans
from dragin_lab.trace.trace import Branches, Trace
from dragin_lab.views.comparing import compare
from dragin_lab.views.html import clip, esc, percent
from dragin_lab.views.pages import open_trace
from dragin_lab.views.rows import draw_tokens, find_text, heatmap, list_alternatives, token_rows
from dragin_lab.widgets.control import Control, LiveFigure, button, draw_into, row


class Explorer(Control):
    """The box. ``tree`` has the trace and its branches; ``token`` is the chosen token's number, from 1."""

    def __init__(
        self, tree: Branches, lab: Lab | None, marks: Path, place: tuple[int, int | None, str | None, int | None]
    ) -> None:
        self.tree, self.lab, self.marks = tree, lab, marks
        branch, step, source, token = place
        wide = {"width": "auto", "max_width": "640px"}
        self.which = ipw.Dropdown(description="branch", options=self.list_branches(), value=branch, layout=wide)
        self.texts = ipw.Dropdown(description="text", layout=wide)
        self.token = ipw.IntSlider(value=1, min=1, max=1, description="token", layout={"width": "480px"})
        self.about, self.step_page, self.comparison = ipw.HTML(), ipw.HTML(), ipw.HTML()
        self.figure, drawing = go.Figure(), ipw.VBox()
        self.instead = ipw.Dropdown(description="instead", layout=wide)
        self.query = ipw.Textarea(description="query", rows=2, layout={"width": "60%"})
        self.keep = ipw.SelectMultiple(description="passages", rows=4, layout={"width": "60%"})

        def offer(label: str, read: Callable[[], dict[str, Any]]) -> ipw.Button:
            return button(label, lambda: self.change_step(**read()), disabled=lab is None)

        write_on, retrieve = offer("write on without", lambda: {"retrieve": False}), lambda: {"retrieve": True}
        changes = [
            row(self.instead, offer("write on with it", lambda: {"to": self.instead.value})),
            row(self.query, offer("search for this", lambda: {"query": self.query.value})),
            row(self.keep, offer("keep only these", lambda: {"passages": list(self.keep.value)})),
            row(offer("retrieve at this token", retrieve), write_on),
        ]
        self.last = ipw.IntSlider(value=1, min=1, max=1, description="to token", layout={"width": "480px"})
        labels = ("not supported", "supported")
        marking = [button(f"mark as {one}", partial(self.guard, partial(self.mark, one))) for one in labels]
        known = [row(self.which, self.texts), drawing, self.token, self.about, self.step_page]
        changes.append(row(self.last, *marking))
        still = lambda: heatmap(self.trace, *self.texts.value[:2]) if self.texts.value else self.trace  # noqa: E731
        super().__init__([*known, *changes], [self.comparison], still)
        self.which.observe(lambda _: self.open_trace(), "value")
        self.texts.observe(lambda _: self.open_text(), "value")
        self.token.observe(lambda _: self.show_token(), "value")
        self.open_trace()
        if step is not None or source is not None or token is not None:
            own, name, text = find_text(self.trace, step, source)
            self.texts.value = (None if own is None else own.index + 1, name)
            if token is not None:
                self.token.value = position("token", token, len(text), "the text") + 1
        self.figure = LiveFigure(self.figure)
        self.listen()
        drawing.children = (self.figure,)

    def list_branches(self) -> list[tuple[str, int]]:
        """The branches by where they part, indented by how deep they lie."""
        return [
            (f"{'– ' * (len(self.tree.path(i)) - 1)}{trace.parting if i else 'the question'}: {trace.answer}"[:120], i)
            for i, trace in enumerate(self.tree)
        ]

    @property
    def trace(self) -> Trace:
        """The branch that is shown."""
        return self.tree[self.which.value]

    def open_trace(self) -> None:
        """Show a branch from the text that retrieved first, or where it parts, beside its parent."""
        trace, parent = self.trace, self.tree.parent(self.which.value)
        texts = [(s.index + 1, n) for s in trace.steps for n in ("draft", "continuation") if getattr(s, n) is not None]
        self.texts.options = [(f"step {step}, {name}", (step, name)) for step, name in texts]
        steps = {step.index + 1 for step in trace.steps if step.query is not None}
        if parent is not None and trace.parting and trace.parting.step is not None:
            steps = {trace.parting.step + 1}
        self.texts.value = next((at for at in texts if at[0] in steps), texts[0] if texts else None)
        pair = [] if parent is None else [self.tree[parent], trace]
        self.comparison.value = compare(pair, labels=["before", "branch"]).html if pair else ""
        if self.texts.value is None:
            self.say("Nothing is written yet.")

    def open_text(self) -> None:
        """Draw a text and choose its first token that fired."""
        if self.texts.value is None:
            return
        own, name, text = find_text(self.trace, *self.texts.value)
        self.rows = token_rows(self.trace, own, name, text)
        draw_into(self.figure, draw_tokens(self.trace, self.rows, f"step {self.texts.value[0]}, {name}"))
        self.listen()
        query = None if own is None else own.query
        self.query.value, self.query.disabled = ("", True) if query is None else (query.text, False)
        passages = [] if own is None else [(clip(f"{p.title}: {p.text}", 90)[0], p) for p in own.passages]
        self.keep.options, self.keep.value = passages, [passage for _, passage in passages]
        reason = "" if own is None or own.decision is None else own.decision.reason
        titles = "".join(f"<li>{esc(title)}</li>" for title, _ in passages)
        search = f"<p>⌕ <b>{esc(query.text)}</b></p><ol>{titles}</ol>" if query is not None else ""
        self.step_page.value = f'<div class="mathjax_ignore"><p>{esc(reason)}</p>{search}</div>'
        self.token.max = self.last.max = max(len(self.rows), 1)
        fired = self.rows.index[self.rows["opens"]]
        self.token.value = int(fired[0]) + 1 if len(fired) else 1
        self.show_token()

    def listen(self) -> None:
        """A click on a bar chooses its token."""
        for bars in self.figure.data[: 3 if len(self.figure.data) > 2 else 2]:
            bars.on_click(lambda _, points, __: setattr(self.token, "value", int(points.point_inds[0]) + 1))

    def show_token(self) -> None:
        """Everything that is known of the chosen token, and what could stand in its place."""
        at, text = self.token.value - 1, find_text(self.trace, *self.texts.value)[2]
        if at >= len(self.rows):
            return
        about = str(esc(self.rows["about"].iloc[at])).replace("\n", "<br>")
        self.about.value = f'<div class="mathjax_ignore" role="status" style="font-family:monospace">{about}</div>'
        with self.figure.batch_update():
            own = [shape for shape in self.figure.layout.shapes if shape.name != "chosen"]
            edge = {"type": "rect", "name": "chosen", "xref": "x", "x0": at + 0.5, "x1": at + 1.5, "yref": "paper"}
            self.figure.layout.shapes = [*own, edge | {"y0": 0, "y1": 1, "line": {"color": "#d55e00", "width": 2}}]
        alternatives = list_alternatives(text, at)
        self.instead.options = [(f"{name}  {percent(share)}", token) for name, share, token in alternatives]
        others = [token for *_, token in alternatives if token != int(text.ids[at])]
        self.instead.value = others[0] if others else None
        self.last.value = self.token.value

    # -- labels --------------------------------------------------------------------------------------------------------

    def mark(self, label: str) -> None:
        """Add the tokens from the chosen one to "to token" as a span to the file of ``dl.Spans``."""
        if self.texts.value is None:
            raise SettingError("nothing is written here that could be marked")
        own, name, text = find_text(self.trace, *self.texts.value)
        prompt = None if own is None else own.prompt if name == "draft" else own.passages_prompt
        assert prompt is not None
        first, last = sorted((self.token.value - 1, self.last.value - 1))
        start, end = int(text.offsets[first, 0]), int(text.offsets[last, 1])
        lead = " " if text.pieces[0].startswith("▁") and not text.text.startswith(" ") else ""  # which decoding drops
        spans = Spans.load(self.marks) if self.marks.is_file() else Spans()
        spans.add(prompt.text, lead + text.text, start + len(lead), end + len(lead), label)
        spans.save(self.marks)
        self.say(f"{text.text[start:end].strip()!r} is marked as {label}; {self.marks.name} has {len(spans)} spans")

    # -- what if -------------------------------------------------------------------------------------------------------

    def change_step(self, **change: Any) -> None:
        """What a button asks for, at the chosen text and token."""
        step, source = self.texts.value or (None, None)
        where: dict[str, Any] = {"step": step}
        if "to" in change:
            where |= {"source": source, "token": self.token.value}
        elif change.get("retrieve"):
            where["token"] = self.token.value
        self.guard(lambda: self.branch(**where, **change))

    def branch(self, **change: Any) -> None:
        """Begin to write a branch of the trace that is shown; ``change`` as for ``Lab.branch``. See ``wait``.

        Raises ``SettingError`` as ``Lab.branch``, without a lab, and while another branch is being written.
        """
        if self.lab is None:
            raise SettingError("without a lab nothing new can be written; give one: dl.explore(trace, lab)")
        if self.busy:
            raise SettingError("a branch is being written; stop it first, or wait for it. Nothing is lost")
        events = stream_branch(self.lab, self.trace, **change)

        def work() -> None:
            self.say("Branching …")
            if not self.follow(events):
                return self.say("Stopped; nothing was added.")
            added = self.tree.add(events.trace)
            self.which.options = self.list_branches()
            self.which.value = next(i for i, trace in enumerate(self.tree) if trace is added)
            return self.say("")

        self.begin(work)


def explore(
    trace: Trace | Branches | str | Path,
    lab: Lab | None = None,
    *,
    branch: int = 0,
    step: int | None = None,
    source: str | None = None,
    token: int | None = None,
    marks: str | Path = "marks.jsonl",
) -> Explorer:
    """An episode token by token: click one, or move the slider, and see all that is known of it.

    It opens at ``step``, its ``source`` ("draft" or "continuation") and ``token``, counted from 1; default where it
    first retrieved. With the ``lab`` that made the trace another token, query, set of passages or decision is a button
    (``Lab.branch``); ``.tree`` keeps all branches. Of a tree, ``branch`` is shown first. Two buttons label the chosen
    tokens in the file ``marks``, which ``dl.Spans.load`` reads. Without a kernel: ``trace.heatmap()``. Raises
    ``SettingError`` for a place that is not there.
    """
    tree = trace if isinstance(trace, Branches) else Branches.of(open_trace(trace))
    instance("lab", lab, Lab | None, "give the dl.Lab that made the trace")
    if not (isinstance(branch, int) and 0 <= branch < len(tree)):
        raise SettingError(f"branch={branch!r}: the tree has traces 0 to {len(tree) - 1}; give one of them")
    return Explorer(tree, lab, as_path(marks), (branch, step, source, token))
