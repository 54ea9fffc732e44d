"""The static view of a trace: what it says, that it is safe, that it holds its budgets, in every state of a trace."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import view_samples as samples
from colours import contrast, luminance
from view_states import BASELINES, STATES, Reader, hostile_trace

from dragin_lab.trace import kept
from dragin_lab.trace.trace import Passage, Prompt, Query, Question, Step, Trace
from dragin_lab.views import heat, sections
from dragin_lab.views.html import esc
from dragin_lab.views.rendering import load_export_script, load_stylesheet
from dragin_lab.views.tokens import find_extents, share_out
from dragin_lab.views.trace import trace_html, trace_text


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", STATES)
def test_every_state_renders_whole_without_script_or_network(name):
    trace = STATES[name]
    for full_page in (False, True):
        html = trace_html(trace, full_page=full_page)
        html.encode()  # no lone surrogates
        read = Reader(
            html.replace(f"<script>{load_export_script()}</script>", "")
        )  # reading needs no script; exporting does
        assert "could not be shown" not in read.text
        assert {tag for tag, _ in read.tags}.isdisjoint({"script", "img", "link", "iframe", "object", "svg"})
        for _, attrs in read.tags:
            assert attrs.keys().isdisjoint({"src", "onerror", "onclick", "srcset", "background"})
            assert attrs.get("href", "#").startswith("#")
        assert trace_html(trace, full_page=full_page) == html
    assert not re.search(r"url\(|@import|https?:", load_stylesheet())


def test_hostile_text_is_shown_as_text():
    html = trace_html(hostile_trace())
    assert "<script" not in html
    assert "\x1b" not in html
    assert "<script>alert('x')</script>" in Reader(html).text
    assert "\x1b" not in trace_text(hostile_trace())


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


def test_the_story_is_told_in_order():
    text = Reader(trace_html(samples.almanac_trace())).text
    story = [
        samples.ASKED,
        "RIND score",
        "Step 1",
        "cut here",
        "Retrieve:",
        "city director film",
        "score 21.4",
        "before",
        "Step 2",
    ]
    places = [text.index(word) for word in story]
    assert places == sorted(places)


def test_header_and_legend_give_the_numbers():
    trace = samples.almanac_trace()
    text = Reader(trace_html(trace)).text
    for fact in ("✓ right", "gold: 1466", "θ 1.2", "2 retrievals", "BM25", "almanac-small"):
        assert fact in text
    assert "✗ wrong" in Reader(trace_html(samples.baseline_trace("fs-rag"))).text
    assert "entropy × attention received" in Reader(trace_html(samples.baseline_trace("fs-rag"))).text


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


@pytest.mark.parametrize(("tokens", "per_draft"), [(2000, 60), (2000, 2000), (5000, 60), (5000, 5000)])
def test_long_traces_stay_within_the_budget_and_say_what_is_left_out(tokens, per_draft):
    trace = samples.long_trace(tokens, per_draft)
    made = sum(map(len, trace.continuations))
    html = trace_html(trace)
    read = Reader(html)
    assert len(html.encode()) <= 1_500_000
    tips = sum("data-i" in attrs for _, attrs in read.tags)
    assert tips <= 2000
    if made <= 2000:
        assert tips == made
    else:
        assert f"of {made:,} tokens are drawn one by one" in read.text
        assert "more tokens, as plain text" in read.text
    assert trace.text.split()[-1] in read.text


def test_what_fired_is_drawn_even_far_behind_the_budget():
    trace = samples.almanac_trace()
    html = trace_html(trace, max_tokens=60)
    part = html[html.index('data-part="draft"') : html.index('data-part="decision"')]
    assert 'class="hit"' in part
    assert "more tokens, as plain text" in part


def test_long_strings_are_cut_visibly():
    trace = samples.almanac_trace()
    huge = "word " * 100_000
    step = trace.steps[0]
    step.passages = (Passage("big", "big", huge), *(Passage(str(i), "t", "x") for i in range(200)))
    step.prompt = Prompt(huge, {"question": (0, len(huge))})
    step.query = Query(huge, huge[:-1], tuple("abcdefghij" * 100), np.ones(1000, np.float32), np.ones(1000, bool))
    html = trace_html(trace)
    assert len(html) < 300_000
    for more in ("more characters", "more passages", "more words"):
        assert more in html
    assert "more characters" in trace_text(trace)


def test_room_is_shared_fairly():
    made = [samples.make("a " * n, [(2 * i, 2 * i + 1) for i in range(n)]) for n in (10, 500, 500)]
    room = [share_out(made, 400)[id(c)] for c in made]
    assert room == [10, 195, 195]
    assert sum(share_out(made, 7).values()) <= 7


def test_right_to_left_emoji_and_split_characters():
    text = "שלום 👩‍🚀 עולם مرحبا"
    star = text.index("👩")
    spans = [(0, 4), (4, star), (star, star + 1), (star, star + 1), (star + 1, star + 3), (star + 3, len(text))]
    made = samples.make(text, spans)
    trace = Trace(Question("q", text, (text,)), {"name": "wo-rag"}, [Step(0, draft=made, kept=text)], text, text)
    html = trace_html(trace)
    read = Reader(html)
    assert [last - first for _, _, first, last, _ in find_extents(made)] == [1, 1, 2, 1, 1]
    assert "2 tokens make this character" in html
    assert read.text.count(text) >= 2
    assert all(a.get("dir") == "auto" for tag, a in read.tags if a.get("class") in ("txt", "q"))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_on_every_level_is_readable(mode):
    pair = r"light-dark\((#\w+),(#\w+)\)"
    rules = re.findall(rf"\.h(\d){{background: {pair};color: {pair}", load_stylesheet())
    assert [int(level) for level, *_ in rules] == list(range(1, heat.LEVELS + 1))
    ramp = [(rule[1 + (mode == "dark")], rule[3 + (mode == "dark")]) for rule in rules]
    assert all(contrast(back, ink) >= 4.5 for back, ink in ramp)
    bright = [luminance(back) for back, _ in ramp]
    assert bright == sorted(bright, reverse=mode == "light")


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
    assert one.count("<style>") == 1
    assert len(load_stylesheet()) < 12_000
    assert load_stylesheet().startswith(".dl-out{")


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


def test_a_trace_that_is_none_at_all_still_answers():
    broken = Trace(Question("q", "?"), {})
    broken.steps = None
    with pytest.warns(RuntimeWarning, match="could not be shown"):
        assert "could not be shown" in trace_html(broken)


def test_fallback_for_notebooks_that_strip_styles():
    html = trace_html(samples.almanac_trace())
    pre = re.search(r'<pre class="alt">(.*?)</pre>', html, re.S)[1]
    assert pre == esc(trace_text(samples.almanac_trace()))
    assert '<div class="dl" hidden>' in html


def test_a_full_page_is_a_document():
    html = trace_html(samples.almanac_trace(), full_page=True)
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>When was the city" in html
    for name in ('charset="utf-8"', 'name="viewport"'):
        assert name in html


def test_text_is_wrapped_and_coloured_on_request_only():
    trace = samples.almanac_trace()
    for width in (40, 60, 100):
        lines = trace_text(trace, width=width).splitlines()
        assert max(map(len, lines)) <= width
    plain, coloured = trace_text(trace), trace_text(trace, color=True)
    assert "\x1b[" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


def test_exemplars_are_written_out_once():
    text = Reader(trace_html(samples.almanac_trace())).text
    assert text.count("the same country?") == 1
    assert "characters as in step 1" in text


def test_gold_answers_are_found_as_whole_words():
    passage = Passage("p", "Gewair", "It was founded in 1388.")
    assert sections.holds_gold(passage, ("1388",))
    assert not sections.holds_gold(passage, ("138", ""))


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("ink", ["fg", "soft", "teal", "red", "amber"])
def test_labels_are_readable_on_card_and_pane(ink, mode):
    def colour(name: str) -> str:
        pair = re.search(rf"--{name}: ?[^;]*light-dark\(([^,]+),([^)]+)\)", load_stylesheet())
        code = pair[1 + mode].lstrip("#")
        return "#" + (code if len(code) == 6 else "".join(2 * c for c in code))

    for back in ("back", "pane"):
        assert contrast(colour(ink), colour(back)) >= 4.5
