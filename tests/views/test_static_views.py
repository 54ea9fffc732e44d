"""The static views of traces: what they say, that they are safe and within their budgets, in every state of a trace."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import view_samples as samples
from view_states import BASELINES, STATES, Reader, hostile_trace

from dragin_lab import views
from dragin_lab.errors import SettingError
from dragin_lab.trace import kept
from dragin_lab.trace.trace import Passage, Prompt, Query, Question, Step, Trace
from dragin_lab.views import heat, sections
from dragin_lab.views.html import esc
from dragin_lab.views.methods import align_sentences, names_of, sentence_likeness
from dragin_lab.views.rendering import load_stylesheet
from dragin_lab.views.tokens import find_extents
from dragin_lab.views.trace import trace_html, trace_text

VIEWS = {
    "trace": views.trace_view,
    "side_by_side": lambda trace: views.side_by_side([trace, trace]),
}


def read(view: str, trace: Trace) -> str:
    """What a person reads in a view."""
    return Reader(VIEWS[view](trace).html).text


# -- every view, in every state ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", STATES)
def test_every_state_renders_whole_without_script_or_network(name, view):
    drawn = VIEWS[view](STATES[name])
    for html in (drawn.html, drawn.page()):
        html.encode()  # no lone surrogates
        shown = Reader(html)
        assert "could not be shown" not in shown.text
        assert {tag for tag, _ in shown.tags}.isdisjoint({"script", "img", "link", "iframe", "object", "svg"})
        for _, attrs in shown.tags:
            assert attrs.keys().isdisjoint({"src", "onerror", "onclick", "srcset", "background"})
            assert attrs.get("href", "#").startswith("#")
    # Where a notebook is not trusted, styles are dropped, and the text is what shows.
    assert re.search(r'<pre class="alt">(.*?)</pre>', drawn.html, re.S)[1] == esc(drawn.text)
    assert VIEWS[view](STATES[name]).html == drawn.html
    ids = [attrs["id"] for _, attrs in shown.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for _, attrs in shown.tags if "href" in attrs} <= set(ids)


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_text_is_shown_as_text(view):
    drawn = VIEWS[view](hostile_trace())
    assert "<script" not in drawn.html
    assert "\x1b" not in drawn.html + drawn.text
    assert "<script>alert('x')</script>" in Reader(drawn.html).text


def test_views_show_print_and_repeat_themselves_as_methods():
    trace = samples.almanac_trace()
    drawn = views.trace_view(trace)
    assert trace._repr_html_() == drawn._repr_html_() == drawn.html
    assert str(drawn) == drawn.text == trace_text(trace)
    assert len(repr(drawn)) < 250
    assert drawn.page().startswith("<!DOCTYPE html>")
    assert f"<title>{esc(drawn.title)}</title>" in drawn.page()


@pytest.mark.parametrize("name", ["methods", "replay", "browse"])
def test_sheets_fetch_nothing_and_hold_for_cards_of_their_name(name):
    css, base = load_stylesheet(name), load_stylesheet()
    assert not re.search(r"url\(|@import|https?:", css)
    assert css.startswith(base)
    assert len(base) < 12_000
    own = re.sub(r"@media print ?\{(.*)\}", r"\1", css[len(base) :].strip())
    assert set(re.findall(r"\.dl-out (\.v-\w+)", own)) == {f".v-{name}"}
    assert css.count("{") == css.count("}")


@pytest.mark.parametrize("view", ["trace"])
@pytest.mark.parametrize(("tokens", "per_draft"), [(2000, 60), (2000, 2000), (5000, 60), (5000, 5000)])
def test_long_traces_stay_within_the_budget_and_say_what_is_left_out(tokens, per_draft, view):
    trace = samples.long_trace(tokens, per_draft)
    written = sum(map(len, trace.continuations))
    html = VIEWS[view](trace).html
    shown = Reader(html)
    assert len(html.encode()) <= 1_500_000
    figures = sum("data-i" in attrs for _, attrs in shown.tags)
    assert figures <= 2000
    if written <= 2000:
        assert figures == written
    else:
        assert f"of {written:,} tokens are drawn one by one" in shown.text
    if tokens > 40 * per_draft:
        assert "more steps" in shown.text
    elif written > 2000:
        assert "more tokens, as plain text" in shown.text


def test_right_to_left_emoji_and_split_characters():
    text = "שלום 👩‍🚀 עולם مرحبا"
    star = text.index("👩")
    spans = [(0, 4), (4, star), (star, star + 1), (star, star + 1), (star + 1, star + 3), (star + 3, len(text))]
    draft = samples.make(text, spans)
    trace = Trace(Question("q", text, (text,)), {"name": "wo-rag"}, [Step(0, draft=draft, kept=text)], text, text)
    shown = Reader(trace_html(trace))
    assert [last - first for _, _, first, last, _ in find_extents(draft)] == [1, 1, 2, 1, 1]
    assert "2 tokens make this character" in trace_html(trace)
    assert shown.text.count(text) >= 2
    assert all(a.get("dir") == "auto" for tag, a in shown.tags if a.get("class") in ("txt", "q"))


# -- the trace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATES)
def test_text_and_html_list_the_same_parts(name):
    trace = STATES[name]
    expected = [part for step in trace.steps for part in sections.step_parts(step)]
    shown = [part for part in Reader(trace_html(trace)).parts() if part in sections.PARTS]
    assert shown == expected
    lines = trace_text(trace).split("\nStep ", 1)
    titles = {title: part for part, (title, _) in sections.PARTS.items()}
    told = [titles[m[1]] for m in re.finditer(r"^(\w+)", lines[-1], re.M) if m[1] in titles] if trace.steps else []
    if trace.notes:
        assert told.pop() == "notes"
    assert told == expected


def test_the_story_is_told_in_order_with_its_numbers():
    text = read("trace", samples.almanac_trace())
    story = [samples.ASKED, "✓ right", "gold: 1466", "θ 1.2", "almanac-small", "BM25", "2 retrievals", "RIND score"]
    story += ["Step 1", "cut here", "Retrieve:", "city director film", "score 21.4", "before", "Step 2"]
    places = [text.index(word) for word in story]
    assert places == sorted(places)
    assert text.count("the same country?") == 1, "exemplars are written out once"
    baseline = read("trace", samples.baseline_trace("fs-rag"))
    assert "✗ wrong" in baseline
    assert "entropy × attention received" in baseline


def test_hits_are_marked_by_more_than_colour():
    trace = samples.almanac_trace()
    words = trace.steps[0].words
    hits = [t for t, hit in zip(words.text, words.hit, strict=True) if hit]
    html = trace_html(trace)
    draft = html[html.index('data-part="draft"') : html.index('data-part="decision"')]
    marks = [Reader(m).text for m in re.findall(r'<mark class="hit".*?</mark>', draft, re.S)]
    assert len(marks) == len(hits) > 0
    for shown, hit in zip(marks, hits, strict=True):
        assert shown.startswith("◆hit, score ")
        assert shown.endswith(hit)
    rule = re.search(r"\.hit\{([^}]*)\}", load_stylesheet())[1]
    assert "font-weight:" in rule.replace(" ", "")
    assert "underline" in rule
    for hit in hits:
        assert f"⟦{hit}⟧" in trace_text(trace)


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_kept_and_thrown_away_text_is_told_apart(variant):
    trace = samples.almanac_trace(variant)
    step = trace.steps[0]
    html = trace_html(trace)
    draft = html[
        html.index('data-part="draft"') : html.index('<details class="part">', html.index('data-part="draft"'))
    ]
    kept, thrown = (re.sub(r"<[^>]+>", "", part, flags=re.S) for part in draft.split('<del class="cut">'))
    cut = step.decision.cut
    assert step.draft.text[:cut].strip() in kept
    assert "cut here" in kept
    assert "Bealtha." in thrown
    assert "Bealtha." not in kept
    assert ("Graizond Loththaimpan was born" in kept) == (variant == "paper")
    # The two sentences stand above each other, with the words that differ marked.
    assert re.search(r"<del>Bealtha\.</del>", html)
    assert re.search(r"<ins>", html)


def test_each_token_has_its_figures_on_hover_and_in_a_table():
    trace = samples.almanac_trace()
    draft = trace.steps[0].draft
    html = trace_html(trace)
    part = html[html.index('data-part="draft"') : html.index('data-part="decision"')]
    tips = re.findall(r'data-i="([^"]*)"', part)
    assert len(tips) == len(find_extents(draft)) == part.count('<th scope="row">')
    for tip in tips:
        assert "entropy" in tip
        assert "attention received" in tip
        assert "likeliest: " in tip
    assert any("stop word" in tip for tip in tips)
    assert any("HIT" in tip for tip in tips)


def test_answer_tokens_are_where_they_were_written():
    for trace in (samples.almanac_trace(), samples.almanac_trace("paper"), *map(samples.baseline_trace, BASELINES)):
        place = 0
        for origin in kept.origins(trace):
            written = origin.continuation.text[origin.at : origin.at + origin.stop - origin.start]
            assert written == trace.text[origin.start : origin.stop]
            assert trace.text[place : origin.start].strip() == ""
            place = origin.stop
        assert trace.text[place:] in ("", "</s>")


def test_what_fired_is_drawn_even_far_behind_the_budget():
    trace = samples.almanac_trace()
    html = trace_html(trace, max_tokens=60)
    part = html[html.index('data-part="draft"') : html.index('data-part="decision"')]
    assert 'class="hit"' in part
    assert "more tokens, as plain text" in part


def test_long_texts_are_cut_visibly():
    trace = samples.almanac_trace()
    huge = "word " * 100_000
    step = trace.steps[0]
    step.passages = (Passage("big", "big", huge), *(Passage(str(i), "t", "x") for i in range(200)))
    step.prompt = Prompt(huge, {"question": (0, len(huge))})
    step.query = Query(huge, huge[:-1], tuple("abcdefghij" * 100), np.ones(1000, np.float32), np.ones(1000, bool))
    step.answer = huge
    html = trace_html(trace)
    assert len(html) < 300_000
    for more in ("more characters", "more passages", "more words"):
        assert more in html
    assert "more characters" in trace_text(trace)


@pytest.mark.parametrize("kind", ["Draft", "hit first"])
def test_labels_leave_the_direction_of_a_text_alone(kind):
    trace = samples.almanac_trace()
    step = trace.steps[1 if kind == "hit first" else 0]
    html = trace_html(dataclasses.replace(trace, steps=[step]))
    text = html[html.index('<div class="txt" dir="auto">', html.index('data-part="draft"')) :]
    seen = re.sub(r"<bdi.*?</bdi>|<[^>]*>", "", text, flags=re.S).lstrip("◆ ")
    assert seen.startswith(step.draft.text[:6])


def test_levels_show_the_threshold():
    scale = heat.Scale("score", "RIND score", 4.0, 1.0)
    values = np.array([np.nan, 0.0, -1.0, 0.01, 1.0, 1.001, 4.0, np.inf])
    assert scale.levels(values).tolist() == [0, 0, 0, 1, heat.BELOW, heat.BELOW + 1, heat.LEVELS, 0]
    free = heat.Scale("product", "x", 9.0)
    assert free.levels(np.array([0.5, 8.5])).tolist() == [1, heat.LEVELS]
    assert len(scale.bounds()) == heat.LEVELS + 1
    calm = heat.Scale("score", "RIND score", 0.5, 1.0)
    assert calm.bounds()[-1] == 1.0
    assert calm.levels(np.array([0.1, 0.5, 1.0])).tolist() == [1, 3, heat.BELOW]


def test_several_traces_stand_in_one_document():
    one, two = trace_html(samples.almanac_trace()), trace_html(samples.baseline_trace("fs-rag"))
    ids = [[a["id"] for _, a in Reader(html).tags if "id" in a] for html in (one, two)]
    assert ids[0]
    assert set(ids[0]).isdisjoint(ids[1])
    for html, own in zip((one, two), ids, strict=True):
        assert len(own) == len(set(own))
        assert {a["href"][1:] for _, a in Reader(html).tags if "href" in a} <= set(own)


def test_a_part_that_fails_shows_its_error_and_its_text():
    trace = samples.almanac_trace()
    trace.steps[0].draft.entropy = trace.steps[0].draft.entropy[:3]
    with pytest.warns(RuntimeWarning, match="could not be shown"):
        html = trace_html(trace)
    read = Reader(html)
    assert "Draft of step 1 could not be shown: " in read.text
    assert any(a.get("role") == "alert" for _, a in read.tags)
    assert "Retrieve:" in read.text
    assert samples.FIRST in read.text


def test_text_is_wrapped_and_coloured_on_request_only():
    trace = samples.almanac_trace()
    for width in (40, 60, 100):
        lines = trace_text(trace, width=width).splitlines()
        assert max(map(len, lines)) <= width
    plain, coloured = trace_text(trace), trace_text(trace, color=True)
    assert "\x1b[" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


def test_gold_answers_are_found_as_whole_words():
    passage = Passage("p", "Gewair", "It was founded in 1388.")
    assert sections.holds_gold(passage, ("1388",))
    assert sections.holds_gold(Passage("p", "Beyonc\u00e9", ""), ("Beyonce\u0301",))
    assert not sections.holds_gold(passage, ("138", ""))


def test_the_legend_says_what_is_judged_and_what_the_frame_means():
    for variant, unit in (("reference", "sentence"), ("paper", "word")):
        text = Reader(views.trace_html(samples.almanac_trace(variant))).text
        assert "framed the token that fired" in " ".join(text.split())
        assert f"Judging ends with the first {unit} that fires" in text
    assert "Judging ends" not in views.trace_html(samples.baseline_trace("fs-rag"))


# -- side by side -----------------------------------------------------------------------------------------------------


def test_sentences_that_say_the_same_stand_in_one_slot():
    texts = [
        ["The film was directed by Ann.", "Ann was born in 1901.", "So the answer is 1901."],
        ["The film was directed by Bob.", "So the answer is 1950."],
        ["Once upon a time.", "The film was directed by Cem.", "Cem was born in 1920.", "So the answer is 1920."],
        [],
    ]
    slots = align_sentences(texts)
    assert slots == [[None, None, 0, None], [0, 0, 1, None], [1, None, 2, None], [2, 1, 3, None]]
    assert align_sentences([[], []]) == []
    assert sentence_likeness("Same.", "same.") == 1
    assert sentence_likeness("", "x") == 0


def test_each_text_keeps_its_sentences_in_order():
    rng = np.random.default_rng(0)
    for _ in range(20):
        texts = [[f"{'abcdefgh'[i]} sentence {i}" for i in rng.integers(0, 8, rng.integers(0, 6))] for _ in range(4)]
        slots = align_sentences(texts)
        for number, text in enumerate(texts):
            assert [slot[number] for slot in slots if slot[number] is not None] == list(range(len(text)))
        assert all(any(s is not None for s in slot) for slot in slots)


def test_methods_stand_under_each_other_with_their_differences():
    traces = [samples.baseline_trace("wo-rag"), samples.almanac_trace(), samples.baseline_trace("fs-rag")]
    drawn = views.side_by_side(traces)
    read = Reader(drawn.html)
    for said in ("wo-rag", "dragin", "fs-rag", "◆ 1", "asked: city director", "instead of", "✓ right", "✗ wrong"):
        assert said in read.text
    assert "<ins>" in drawn.html
    assert "\ndragin  1466 (✓ right)" in drawn.text
    assert read.text.count("asked: ") == sum(trace.retrievals_count for trace in traces)


def test_names_say_what_differs_and_no_more():
    one, two = samples.almanac_trace(), samples.almanac_trace("paper")
    three = dataclasses.replace(one, method=one.method | {"threshold": 0.8})
    assert names_of([one, samples.baseline_trace("wo-rag")]) == ["dragin", "wo-rag"]
    assert names_of([one, two]) == ["dragin reference", "dragin paper"]
    assert names_of([one, two, three]) == ["dragin reference θ 1.2", "dragin paper", "dragin reference θ 0.8"]
    assert names_of([one, one]) == ["dragin #1", "dragin #2"]


def test_what_cannot_be_compared_is_refused(tmp_path):
    one = samples.almanac_trace()
    other = dataclasses.replace(one, question=Question("q", "Who?"))
    for traces, labels, says in (
        ([], None, "0 traces"),
        ([one] * 17, None, "17 traces"),
        ([one, other], None, "different questions"),
        ([one], ["a", "b"], "2 labels"),
        (one, None, "give a list"),
    ):
        with pytest.raises(SettingError, match=says):
            views.side_by_side(traces, labels=labels)
    one.save(tmp_path / "a.trace")
    assert "mine" in views.side_by_side([tmp_path / "a.trace"], labels=["mine"]).text
