"""The episode in one picture: every word once, at its place, in every state of a trace."""

from __future__ import annotations

import re

import pytest
import view_samples as samples
from answering import DRAGIN
from scripted import Say, ScriptedModel, ScriptedRetriever
from test_trace_page import STATES
from view_samples import Reader

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.trace.trace import Decision
from dragin_lab.views.overview_page import CARRY, LINES, find_lines
from dragin_lab.views.texts import Texts

LOUD = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}}


def squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def lines_of(trace, marks=None):
    return find_lines(Texts(trace), marks or {})


@pytest.mark.parametrize("name", STATES)
def test_every_word_that_was_written_stands_there_once_and_is_kept_or_thrown_away(name):
    trace = STATES[name]
    words = [word for line in lines_of(trace) for word in line.words if line.step is not None]
    wrote = "".join(text.text for step in trace.steps for _, text, _ in step.texts)
    assert squeeze("".join(word.text for word in words)) == squeeze(wrote)
    asked = [line.asked for line in lines_of(trace) if line.asked]
    assert len(asked) == trace.retrievals_count
    Reader(trace.overview().html)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_what_came_instead_stands_exactly_under_what_was_thrown_away(variant):
    lines = lines_of(samples.almanac_trace(variant))
    place = next(at for at, line in enumerate(lines) if line.words and not line.words[-1].kept)
    cut, asks, instead = lines[place : place + 3]
    before = cut.before + "".join(word.text for word in cut.words if word.kept)
    assert asks.asked
    assert asks.before == instead.before == before
    assert len(before) <= CARRY
    assert "Gewair Lantern · Graizond Loththaimpan" in asks.found
    gone = "".join(word.text for word in cut.words if not word.kept)
    assert gone.strip().startswith("Bealtha." if variant == "paper" else "Graizond Loththaimpan was born in")


def test_words_are_whole_fire_and_carry_their_mark():
    script = [Say(" It is by Bo Ek, a man", **LOUD), Say(" Li Ann. So the answer is Li.")]
    trace = dl.Lab(ScriptedModel(script), retriever=ScriptedRetriever()).ask("Who?", DRAGIN)
    page = trace.overview({(2, "draft", 1): "1", (1, "draft", 1): "no passage was in view here"})
    assert page.html.count('<sup class="from">1</sup>') == 1 == page.html.count('class="from"')
    assert page.text.splitlines()[3].startswith("It is by ~[⟦Bo⟧")
    html = samples.almanac_trace().overview().html
    assert ">Loththaimpan<" in html.replace("Loththaimpan.", "Loththaimpan"), "its tokens are one word"


def test_a_long_trace_is_folded_and_says_what_it_leaves_out():
    trace, found = samples.long_trace(7000, 100), samples.almanac_trace().steps[0]
    for step in trace.steps:
        step.decision, step.query, step.passages = Decision(True, "x", 30), found.query, found.passages
    html = trace.overview().html
    assert trace.counters["discarded"] > 6000
    assert html.count('<div class="ln') <= LINES
    assert "more word" in html
    assert re.search(r"⋯ 5\d steps more: 5\d retrievals, [\d,]+ of [\d,]+ tokens thrown away", html)


def test_an_empty_episode_says_so():
    assert "nothing written yet" in dl.Trace(dl.Question("q", "Who?"), {}).overview().html
    assert set(views.__all__) == set(dir(views))
