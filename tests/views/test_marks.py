"""What fires is what is marked, at the θ that is shown; a word that may not fire is drawn as not judged."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from scripted import Say, drive
from view_states import Reader

from dragin_lab import views
from dragin_lab.catalog.methods import method
from dragin_lab.trace.trace import Trace
from dragin_lab.widgets import tuner
from dragin_lab.widgets.explorer import explorer_data

LOUD = {"entropy": {"Bo": 4.5, "Li": 3.0}, "received": {"Bo": 0.2, "Li": 0.2}}


@pytest.fixture(scope="module")
def resumed() -> Trace:
    """An episode that fires at "Bo" (0.9), and then resumes a sentence with "Bo" and writes "Li" (0.6) after it."""
    found = method("dragin", what="question")
    scripts = [Say(" It is Bo Ek, a man", **LOUD), Say(" Bo Ek. He is Li, a man", **LOUD), Say(" Li.")]
    return drive(found, *scripts, Say("Li")).trace


def marked(html: str) -> list[str]:
    """The words that are marked as hits below the legend."""
    rows = html[html.index('data-part="legend"') :].split("</div>", 1)[1]
    hits = re.findall(r'<mark class="hit".*?</mark>', rows, re.DOTALL)
    return [re.sub(r"<bdi.*?</bdi>|<[^>]*>", "", hit).strip("◆ ,") for hit in hits]


@pytest.mark.parametrize(("theta", "hits"), [(0.25, ["Bo", "Li"]), (0.7, ["Bo"]), (1.2, []), (50.0, [])])
def test_a_replay_marks_what_fires_at_its_own_threshold(resumed: Trace, theta: float, hits: list[str]) -> None:
    assert [step.words.text[step.words.hit.argmax()] for step in resumed.steps if step.words.hit.any()] == ["Bo", "Li,"]
    control = tuner(resumed)
    control.tune(threshold=theta)
    for html in (views.replayed(resumed, threshold=theta).html, control.answer["html"]):
        assert marked(html) == hits
        assert ("   HIT" in html) == bool(hits)


def test_words_that_may_not_fire_are_drawn_as_not_judged(resumed: Trace) -> None:
    assert resumed.steps[1].words.text[:2] == ("Bo", "Ek.")
    for drawn in (views.trace_view(resumed), views.replayed(resumed)):
        body = drawn.html[drawn.html.index('data-part="legend"') :]
        assert "not judged: may not fire" in Reader(drawn.html).text
        tips = [tip for tip in re.findall(r'data-i="([^"]*)"', body) if "word “Bo”" in tip]
        assert [("HIT" in tip, "not judged" in tip) for tip in tips] == [(True, False), (False, True)]


def test_the_explorer_compares_only_judged_words_with_the_threshold(resumed: Trace) -> None:
    first, second = explorer_data(resumed)["texts"][:2]
    (fired,) = [cell["w"] for cell in first["cells"] if cell["h"]]
    assert (fired["over"], fired["v"]) == (True, "0.9 is above θ 0.25")
    bare = second["cells"][0]
    assert (bare["t"].strip(), bare["h"], bare["l"], bare["w"]["over"]) == ("Bo", False, 0, False)
    assert bare["w"]["v"] == "not judged: it may not fire here"
    assert "unjudged" in bare["x"]
    quiet = next(cell["w"] for cell in second["cells"] if cell["t"].strip() == "He")
    assert (quiet["over"], quiet["v"].endswith("is at most θ 0.25")) == (False, True)


def test_the_table_of_tokens_says_which_words_were_judged(resumed: Trace) -> None:
    table = resumed.tokens.query("source == 'draft'")
    above = table[(table["score"] > 0.25) & ~table["hit"]]
    assert above["judged"].tolist() == [False] * len(above) != []


def test_a_trace_that_does_not_say_what_was_judged_is_drawn_as_before(resumed: Trace, tmp_path: Path) -> None:
    old = copy.deepcopy(resumed)
    for step in old.steps:
        step.words.judged = np.zeros(0, bool)
    old = Trace.load(old.save(tmp_path / "old.trace"))
    assert "unjudged" not in views.trace_html(old).split("</style>")[1]
    assert old.tokens.dropna(subset="word")["judged"].all()
