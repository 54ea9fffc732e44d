"""Traces in every state that an episode, a method or a script can leave them in, and a reader for what views make."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import numpy as np
import view_samples as samples
from factories import make_prompt

from dragin_lab.trace.trace import Decision, Passage, Prompt, Query, Question, Step, Trace, Words

VOID = {"meta", "br", "link", "img"}
BASELINES = ("wo-rag", "sr-rag", "fs-rag", "fl-rag")


class Reader(HTMLParser):
    """Checks that elements close in order, and collects tags, attributes and the text that a person can read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.skipping = 0
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        hidden = tag == "pre" and ("class", "alt") in attrs
        self.skipping += bool(self.skipping) or tag == "style" or hidden

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.skipping = max(0, self.skipping - 1)

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.text += data

    def parts(self) -> list[str]:
        return [attrs["data-part"] for _, attrs in self.tags if "data-part" in attrs]


def hostile_trace() -> Trace:
    run = "document.title = 'x'"
    bad = f'<script>{run}</script> & <img src=https://evil.example/a.png onerror="{run}"> "quoted" \x1b[31m \ud800'
    made = samples.make(bad, seed=1)
    made.alternative_tokens = tuple((bad, "</span>") for _ in made.pieces)
    words = Words(
        (bad,),
        np.array([[0, len(made)]], np.int32),
        np.zeros(1, np.int32),
        *(np.ones(1, np.float32) for _ in range(2)),
        np.zeros(1, bool),
        np.full(1, 3.0, np.float32),
        np.ones(1, bool),
    )
    query = Query(bad, bad + "!", (bad,), np.ones(1, np.float32), np.ones(1, bool), bad)
    step = Step(
        0,
        Prompt(bad, {bad: (0, 9)}, (bad,)),
        made,
        words,
        Decision(True, bad, 5, 1, 0),
        query,
        (Passage(bad, bad, bad),),
    )
    step.passages_prompt, step.continuation, step.notes = Prompt(bad), samples.make(bad), [bad]
    step.kept, step.discarded = bad, bad
    asked = bad.rstrip("\ud800")  # a question holds whole characters only
    method = {"name": bad, bad: bad, "variant": "paper", "threshold": 1.2}
    trace = Trace(Question(asked, asked, (asked,)), method, [step], bad, bad)
    trace.ended, trace.error, trace.provenance, trace.notes = "error", bad, {bad: {bad: bad}, "model": bad}, [bad]
    return trace


def strange_traces() -> dict[str, Trace]:
    """A trace in every state that an episode, a method or a script can leave it in."""
    asked = Question("q", samples.ASKED)
    method = {"name": "dragin", "variant": "reference", "when": "rind", "what": "qfs", "threshold": 1.2}
    whole = samples.almanac_trace()
    made = samples.make(samples.FIRST)
    none = samples.make("", [])
    bare = dataclasses.replace(
        made,
        received=np.full(len(made), np.nan, np.float32),
        alternative_ids=np.zeros((0, 0), np.int32),
        alternative_probs=np.zeros((0, 0), np.float32),
        alternative_tokens=(),
    )
    nan = np.full(len(whole.steps[0].words), np.nan, np.float32)
    blank = dataclasses.replace(whole.steps[0].words, attention=nan, entropy=nan, score=nan)
    states = {
        "empty": Trace(asked, {}),
        "running, a step that has only begun": Trace(asked, method, [Step(0, make_prompt(""))]),
        "running, a draft not decided": Trace(asked, method, [Step(0, make_prompt(""), made)]),
        "cancelled": dataclasses.replace(whole, steps=whole.steps[:1], ended="cancelled", scores={}, answer=""),
        "error": dataclasses.replace(whole, ended="error", error="the search failed: no index"),
        "error without a message": Trace(asked, method, ended="error"),
        "no attention, no alternatives": Trace(asked, method, [Step(0, draft=bare, kept=made.text)], made.text),
        "nothing written": Trace(asked, method, [Step(0, draft=none, decision=Decision(False, "empty"))]),
        "nothing found": Trace(asked, method, [Step(0, query=Query("", ""), continuation=none)]),
        "words not measured": dataclasses.replace(
            whole, steps=[dataclasses.replace(whole.steps[0], words=blank)], text=whole.steps[0].answer
        ),
        "cut nowhere": Trace(asked, method, [Step(0, draft=made, decision=Decision(True, "r"), query=Query("a", "a"))]),
        "scored without a threshold": dataclasses.replace(whole, method={"name": "mine"}),
        "extraction": dataclasses.replace(
            whole, extraction=samples.make(" 1466."), extraction_prompt=make_prompt(whole.text)
        ),
        "generated on behind the decision": Trace(
            asked,
            method,
            [Step(0, draft=made, decision=Decision(False, "r", certain=False))],
        ),
        "paper variant": samples.almanac_trace("paper"),
        "hostile": hostile_trace(),
    }
    return states | {"reference variant": whole} | {name: samples.baseline_trace(name) for name in BASELINES}


STATES = strange_traces()
