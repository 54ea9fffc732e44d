"""Traces for the views: a real DRAGIN episode, retold, and traces in every state; and a reader
for what views make.
"""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
from factories import make_continuation, make_prompt
from scripted import Say, ScriptedModel, WordTokenizer

import dragin_lab as dl
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.trace.trace import (
    Decision,
    Draft,
    Passage,
    Prompt,
    Query,
    Question,
    Step,
    Trace,
    Words,
)

BLUE = Exemplar("Is the sky blue?", "The sky is blue.", "yes")
ASKED = "When was the city where the director of film Gewair Lantern was born founded?"
FOUND = (
    Passage(
        "a54",
        "Gewair Lantern",
        "Gewair Lantern is a drama film of 1976, directed by Graizond Loththaimpan.",
        21.37,
    ),
    Passage(
        "a114",
        "Graizond Loththaimpan",
        "Graizond Loththaimpan was born in the city of Ceardeldrial.",
        17.9,
    ),
    Passage(
        "a49", "Grondnimliath Lantern", "Grondnimliath Lantern is a thriller film of 1960.", 9.52
    ),
)
FIRST = (
    "The film Gewair Lantern was directed by Graizond Loththaimpan. Graizond Loththaimpan was born"
    " in the city of Bealtha. Bealtha was founded in the year 1466. So the answer is 1466."
)
SECOND = "Gewair Lantern was founded in the year 1466. So the answer is 1466."


class Pieces(WordTokenizer):
    """Words of several tokens, of up to four letters each."""

    def cut(self, text: str) -> list[tuple[int, int, int]]:
        cuts = [
            (a, min(a + 5, end))
            for _, start, end in super().cut(text)
            for a in range(start, end, 5)
        ]
        return [(super(Pieces, self).cut(text[a:b])[0][0], a, b) for a, b in cuts]


def ask(name: str, *says: Say, gold: str = "1466", **settings: Any) -> Trace:
    """The trace of a model that says these texts in turn."""
    model = ScriptedModel(says, looks={"Gew": 3.0, "the": 0.1})
    model.tokenizer = Pieces()
    lab = dl.Lab(
        model, retriever=lambda query, k: list(FOUND[:k]), exemplars=PromptTemplate((BLUE,))
    )
    return lab.ask(Question("q0", ASKED, (gold,)), name, **settings)


def split(text: str, size: int = 4) -> list[tuple[int, int]]:
    """Character spans of made-up tokens: every word with the space before it, cut every ``size``
    letters.
    """
    spans, start = [], 0
    for i in range(1, len(text) + 1):
        if (
            i == len(text)
            or text[i] == " "
            or i - start >= size + (text[start] == " ")
            or text[i] in ".?"
        ):
            spans.append((start, i))
            start = i
    return spans


def make(text: str, spans: list[tuple[int, int]] | None = None, *, seed: int = 0) -> Draft:
    """A continuation of this text with made-up but fixed figures."""
    spans = split(text) if spans is None else spans
    made = make_continuation(make_prompt(), "x " * len(spans), attention=False, seed=seed)
    return replace(
        made,
        pieces=tuple(text[a:b].replace(" ", "▁") for a, b in spans),
        text=text,
        raw_text=text,
        offsets=np.array(spans, np.int32).reshape(-1, 2),
        received=made.received.clip(0.01, 0.6),
        alternative_tokens=tuple((text[a:b], " Bel", "ai") for a, b in spans),
    )


def almanac_trace(variant: str = "reference") -> Trace:
    """Two retrievals and an end. The paper variant is the first retrieval alone, resumed in the
    next step.
    """
    says = [
        Say(f" {FIRST}", entropy={"Beal": 4.0}, received={"Beal": 0.6}),
        Say(" Graizond Loththaimpan was born in the city of Gewair. It stands on the river."),
        Say(f" {SECOND}", entropy={"1": 30.0}, received={"1": 0.9}),
        Say(" Gewair Lantern was founded in the year 1466. It stands on the river."),
        Say(" So the answer is 1466."),
    ]
    if variant == "paper":
        said = (
            " Graizond Loththaimpan. He was born in Gewair, founded in 1466. So the answer is 1466."
        )
        says[1:] = [Say(said)]
    trace = ask("dragin", *says, variant=variant, threshold=1.2, top_n=10)
    trace.steps[0].notes.append(
        "re-encoded text gives other ids than were generated, from token 17 on"
    )
    return trace


def baseline_trace(name: str) -> Trace:
    """A method that searches first and judges nothing (``fl-rag``, ``fs-rag``, ``sr-rag``), or
    never (``wo-rag``).
    """
    whole = name in ("wo-rag", "sr-rag")
    says = [f" {FIRST}"] if whole else [f" {part.rstrip('.')}." for part in FIRST.split(". ")]
    return ask(name, *map(Say, says), gold="1388", variant="reference")


def judged_whole(unit: str, peaks: tuple[float, ...]) -> Trace:
    """``almanac_trace`` by a trigger that compares each "sentence", or the "draft", with θ."""
    trace = almanac_trace()
    trace.method |= {"when": "mine", "measure": "entropy", "unit": unit}
    trace.steps[0].decision = replace(trace.steps[0].decision, peaks=peaks)
    return trace


def long_trace(tokens: int, per_draft: int = 60) -> Trace:
    """A paper-variant trace that made about this many tokens, all judged, every fifth draft with
    a hit.
    """
    trace = Trace(
        Question("q2", ASKED, ("1466",)),
        {
            "name": "dragin",
            "variant": "paper",
            "when": "rind",
            "measure": "RIND score",
            "threshold": 1.2,
        },
    )
    text = (FIRST + " ") * (per_draft // 25 + 2)
    spans = split(text)[:per_draft]
    text = text[: spans[-1][1]]
    for index in range(tokens // per_draft):
        made = make(text, spans, seed=index)
        trigger = dl.method("dragin", threshold=1.2 if index % 5 == 0 else 99.0).trigger
        words = trigger.judge(made.read_by(load_pipeline(), ended=True)).words
        step = Step(
            index,
            make_prompt(trace.text[-300:]),
            made,
            words,
            Decision(False, "no word scores above θ 1.2"),
        )
        step.kept = text
        trace.text = step.answer = f"{trace.text} {text.strip()}".strip()
        trace.steps.append(step)
    trace.ended = "length"
    return trace


def sweep_table(**more: object) -> pd.DataFrame:
    """A sweep over three thresholds, with intervals."""
    table = pd.DataFrame({"setting": "threshold", "value": [1.4, 1.0, 1.2], "n": 200})
    for name, values in (
        ("em", [0.30, 0.28, 0.32]),
        ("f1", [0.40, 0.38, 0.42]),
        ("retrievals", [1.0, 3.0, 2.0]),
    ):
        table[name] = values
        table[f"{name}_low"], table[f"{name}_high"] = table[name] - 0.05, table[name] + 0.06
    return table.assign(**more)


# -- every state, and a reader ---------------------------------------------------------------------

VOID = {"meta", "br", "link", "img"}
BASELINES = ("wo-rag", "sr-rag", "fs-rag", "fl-rag")


class Reader(HTMLParser):
    """Checks that elements close in order, and collects tags, attributes and the text that a
    person can read.
    """

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
    bad = (
        f'<script>{run}</script> & <img src=https://evil.example/a.png onerror="{run}"> "quoted"'
        " \x1b[31m \ud800"
    )
    made = make(bad, seed=1)
    made.alternative_tokens = tuple((bad, "</span>") for _ in made.pieces)
    one, score = np.ones(1, np.float32), np.full(1, 3.0, np.float32)
    spans, sentence = np.array([[0, len(made)]], np.int32), np.zeros(1, np.int32)
    words = Words((bad,), spans, sentence, one, one, np.zeros(1, bool), score, np.ones(1, bool))
    query = Query(bad, bad + "!", (bad,), np.ones(1, np.float32), np.ones(1, bool), bad)
    decision, prompt = Decision(True, bad, 5, 1, 0), Prompt(bad, {bad: (0, 9)}, (bad,))
    step = Step(0, prompt, made, words, decision, query, (Passage(bad, bad, bad),))
    step.passages_prompt, step.continuation, step.notes = Prompt(bad), make(bad), [bad]
    step.kept, step.discarded = bad, bad
    asked = bad.rstrip("\ud800")  # a question holds whole characters only
    method = {"name": bad, bad: bad, "variant": "paper", "threshold": 1.2}
    trace = Trace(Question(asked, asked, (asked,)), method, [step], bad, bad)
    trace.ended, trace.error, trace.provenance, trace.notes = (
        "error",
        bad,
        {bad: {bad: bad}, "model": bad},
        [bad],
    )
    return trace


def strange_traces() -> dict[str, Trace]:
    """A trace in every state that an episode, a method or a script can leave it in."""
    asked = Question("q", ASKED)
    method = {
        "name": "dragin",
        "variant": "reference",
        "when": "rind",
        "what": "qfs",
        "threshold": 1.2,
    }
    whole = almanac_trace()
    made = make(FIRST)
    none = make("", [])
    bare = replace(
        made,
        received=np.full(len(made), np.nan, np.float32),
        alternative_ids=np.zeros((0, 0), np.int32),
        alternative_probs=np.zeros((0, 0), np.float32),
        alternative_tokens=(),
    )
    nan = np.full(len(whole.steps[0].words), np.nan, np.float32)
    blank = replace(whole.steps[0].words, attention=nan, entropy=nan, score=nan)
    states = {
        "empty": Trace(asked, {}),
        "running, a step that has only begun": Trace(asked, method, [Step(0, make_prompt(""))]),
        "running, a draft not decided": Trace(asked, method, [Step(0, make_prompt(""), made)]),
        "cancelled": replace(whole, steps=whole.steps[:1], ended="cancelled", scores={}, answer=""),
        "error": replace(whole, ended="error", error="the search failed: no index"),
        "error without a message": Trace(asked, method, ended="error"),
        "no attention, no alternatives": Trace(
            asked, method, [Step(0, draft=bare, kept=made.text)], made.text
        ),
        "nothing written": Trace(
            asked, method, [Step(0, draft=none, decision=Decision(False, "empty"))]
        ),
        "nothing found": Trace(asked, method, [Step(0, query=Query("", ""), continuation=none)]),
        "words not measured": replace(
            whole, steps=[replace(whole.steps[0], words=blank)], text=whole.steps[0].answer
        ),
        "cut nowhere": Trace(
            asked,
            method,
            [Step(0, draft=made, decision=Decision(True, "r"), query=Query("a", "a"))],
        ),
        "scored without a threshold": replace(whole, method={"name": "mine"}),
        "extraction": replace(
            whole, extraction=make(" 1466."), extraction_prompt=make_prompt(whole.text)
        ),
        "generated on behind the decision": Trace(
            asked, method, [Step(0, draft=made, decision=Decision(False, "r", certain=False))]
        ),
        "paper variant": almanac_trace("paper"),
        "hostile": hostile_trace(),
    }
    return (
        states | {"reference variant": whole} | {name: baseline_trace(name) for name in BASELINES}
    )


STATES = strange_traces()
