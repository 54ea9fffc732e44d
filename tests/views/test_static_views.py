"""The static views of traces: what they say, that they are safe and within their budgets, in every state of a trace."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import view_samples as samples
from view_states import BASELINES, STATES, Reader, hostile_trace

from dragin_lab import views
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.errors import SettingError
from dragin_lab.trace import kept
from dragin_lab.trace.trace import Passage, Prompt, Query, Question, Step, Trace
from dragin_lab.views import heat, heatmaps, sections
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import esc, short
from dragin_lab.views.methods import align_sentences, names_of, sentence_likeness
from dragin_lab.views.rendering import load_stylesheet
from dragin_lab.views.selections import hit_spans, source_words
from dragin_lab.views.timelines import spans_of, step_costs
from dragin_lab.views.tokens import Look, find_extents
from dragin_lab.views.trace import trace_html, trace_text
from dragin_lab.widgets.explorer import explorer_data

VIEWS = {
    "trace": views.trace_view,
    "heatmap": views.heatmap,
    "selections": views.selections,
    "timeline": views.timeline,
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
    for view in ("heatmap", "selections", "timeline"):
        drawn = VIEWS[view](trace)
        assert getattr(trace, view)() == drawn
        assert drawn._repr_html_() == drawn.html
        assert str(drawn) == drawn.text == trace_text(trace)
        assert len(repr(drawn)) < 250
        assert drawn.page().startswith("<!DOCTYPE html>")
        assert f"<title>{esc(drawn.title)}</title>" in drawn.page()


@pytest.mark.parametrize("name", ["strip", "qfs", "timeline", "methods", "replay", "browse"])
def test_sheets_fetch_nothing_and_hold_for_cards_of_their_name(name):
    css, base = load_stylesheet(name), load_stylesheet()
    assert not re.search(r"url\(|@import|https?:", css)
    assert css.startswith(base)
    assert len(base) < 12_000
    own = re.sub(r"@media print ?\{(.*)\}", r"\1", css[len(base) :].strip())
    assert set(re.findall(r"\.dl-out (\.v-\w+)", own)) == {f".v-{name}"}
    assert css.count("{") == css.count("}")


@pytest.mark.parametrize("view", ["heatmap", "selections", "timeline"])
def test_a_file_that_holds_no_trace_says_so_in_place(view, tmp_path):
    trace = samples.almanac_trace()
    whole = trace.save(tmp_path / "whole.trace").read_bytes()
    (tmp_path / "cut.trace").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "newer.trace").write_bytes(whole.replace(b'"version":"4"', b'"version":"9"', 1))
    for name, says in (("cut", "not a trace, or a damaged one"), ("newer", "format 9"), ("absent", "no such file")):
        drawn = VIEWS[view](tmp_path / f"{name}.trace")
        shown = Reader(drawn.html)
        assert says in shown.text
        assert says in drawn.text
        assert any(attrs.get("role") == "alert" for _, attrs in shown.tags)
    assert VIEWS[view](tmp_path / "whole.trace").html == VIEWS[view](trace).html
    with pytest.raises(SettingError, match="not int"):
        VIEWS[view](7)


@pytest.mark.parametrize("view", ["trace", "heatmap"])
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
    assert 'dir="rtl"' in views.heatmap(trace).html
    assert ">שלום</b>" in views.heatmap(trace).html


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
    of_a_query = read("selections", samples.almanac_trace())
    story = ["Step 1", "Looked at", "Lantern0.143", "Query", "city director film", "10 of 11", "score 21.4"]
    places = [of_a_query.index(word) for word in story]
    assert places == sorted(places)


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
    assert "earlier words …" in views.selections(trace).html
    long = read("timeline", samples.long_trace(5000, 50))
    assert "… 40 more steps with 2,000 tokens, not drawn" in long
    assert "The sum counts all 100 steps." in long


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


@pytest.mark.parametrize("theta", [-5.0, -30.0, -1.0])
def test_scores_below_zero_have_colours_and_bars_from_the_lowest_on(theta):
    trace = samples.almanac_trace()
    for step in trace.steps:
        step.words.score = step.words.score - np.float32(20)
    trace.method |= {"when": "self-certainty", "measure": "self-certainty score", "unit": "word", "threshold": theta}
    scores = np.concatenate([step.words.score for step in trace.steps if step.draft is not None])
    scale = scale_of(trace)
    assert scale.base == pytest.approx(min(scores.min(), theta))
    levels = scale.levels(np.array([scale.base, scores.max()]))
    assert levels[0] == 0
    assert (levels[1] > heat.BELOW) == (scores.max() > theta)
    html = views.heatmap(trace).html
    bars = [float(share) for share in re.findall(r"--s:([-\d.e]+)", html)]
    assert bars
    assert min(bars) >= 0 < max(bars) <= 1
    (axis,) = {float(share) for share in re.findall(r"--t:([-\d.]+)", html)} or {-9.0}
    assert 0 <= axis < 1
    assert f"{short(scale.base)} to" in Reader(html).text
    data = explorer_data(trace)
    assert data["base"] == pytest.approx(scale.base, rel=1e-3)


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


# -- heatmap ----------------------------------------------------------------------------------------------------------


def _columns(trace: Trace) -> tuple[Look, list[heatmaps.Column]]:
    step = trace.steps[0]
    look = Look.of(step.draft, scale_of(trace), step.words, step.decision)
    return look, heatmaps.find_columns(look, 0, len(step.draft.text), step.decision.cut)


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_a_column_holds_what_was_measured(variant):
    trace = samples.almanac_trace(variant)
    look, cols = _columns(trace)
    made, words = look.continuation, trace.steps[0].words
    owner = look.owner
    assert len(cols) == len(look.cells)
    for col in cols:
        first = col.cell.first
        assert col.entropy == pytest.approx(float(made.entropy[first]))
        told = words.attention[owner[first]] if variant == "reference" else made.received[first]
        assert col.attention == pytest.approx(float(told))
        assert col.score == pytest.approx(float(words.score[owner[first]]))
        assert col.stop == words.stop[owner[first]]
        assert col.cell.hit == words.hit[owner[first]]
        assert col.gone == (col.cell.start >= trace.steps[0].decision.cut)
    assert sum(col.cell.fired for col in cols) == 1
    assert [col.opens for col in cols].count(True) == len(words)


def test_bars_and_theta_have_the_heights_of_their_numbers():
    trace = samples.almanac_trace()
    trace.steps = trace.steps[:1]
    trace.steps[0].continuation = None
    look, cols = _columns(trace)
    axes = heatmaps.axes_of([look])
    html = views.heatmap(trace).html
    html = html[html.index('class="strip') :]
    assert f"--t:{1.2 / axes.score:.3f}" in html
    heights = [float(v) for v in re.findall(r"--s:([\d.e-]+)", html)]
    expected = [c.score / axes.score for c in cols if c.score / axes.score >= 0.005]
    assert heights == pytest.approx(expected, rel=0.06)
    above = re.findall(r'<i class="[^"]*\bover\b', html)
    assert len(above) == sum(c.score > 1.2 for c in cols) > 0
    assert len(re.findall(r'<i class="w[^"]*\bs\b', html)) == sum(c.stop and c.opens for c in cols) > 0
    tips = re.findall(r'data-i="([^"]*)"', html)
    assert len(tips) == len(cols)
    assert all("likeliest: " in tip and "%" in tip for tip in tips)


def test_rows_are_named_and_only_where_something_judged():
    read = Reader(views.heatmap(samples.almanac_trace()).html).text
    for name in ("entropy", "the trigger’s", "stop word", "RIND score", "θ 1.2", "✂"):
        assert name in read
    plain = views.heatmap(samples.baseline_trace("fs-rag")).html
    assert 'class="strip rows3"' in plain
    assert 'class="strip rows5"' not in plain
    assert "stop word" not in Reader(plain).text


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_the_figures_shown_multiply_to_the_score(variant):
    trace = samples.almanac_trace(variant)
    step = trace.steps[0]
    if variant == "paper":
        words = step.words
        score = np.where(words.stop, 0, words.entropy * words.attention).astype(np.float32)
        step.words = dataclasses.replace(words, score=score)
    look, _ = _columns(trace)
    for word in range(len(step.words)):
        [said] = look.reckoned[word]
        product, total = said.split(" = score ")
        factors = [float(part.split()[-1]) for part in product.split(" × ")]
        assert float(total) == pytest.approx(np.prod(factors), rel=2e-3, abs=1e-6)
        assert ("sentence" in product) == (variant == "reference")
    own = dataclasses.replace(look, words=dataclasses.replace(step.words, score=np.sqrt(step.words.entropy)))
    assert all("=" not in said for word in range(len(own.words)) for said in own.reckoned[word])


def test_the_legend_says_what_is_judged_and_what_the_frame_means():
    for variant, unit in (("reference", "sentence"), ("paper", "word")):
        text = Reader(views.trace_html(samples.almanac_trace(variant))).text
        assert "framed the token that fired" in " ".join(text.split())
        assert f"Judging ends with the first {unit} that fires" in text
    assert "Judging ends" not in views.trace_html(samples.baseline_trace("fs-rag"))


@pytest.mark.parametrize(
    ("text", "way"), [("The film", "ltr"), ("שלום The", "rtl"), ("123 مرحبا", "rtl"), ("12 !", "ltr")]
)
def test_the_axis_runs_as_its_text_does(text, way):
    assert heatmaps.text_direction(text) == way


# -- selections -------------------------------------------------------------------------------------------------------


def _labelled(trace: Trace, *passages: str) -> Labelled:
    facts = tuple(
        Fact(f"f{i}", "Gewair", "founded", "1466", 0, 4, "unknown", "never", None, p) for i, p in enumerate(passages)
    )
    asked = trace.question.text
    return Labelled("q", "2wikimultihopqa", "dev", "t", asked, "unknown", "1466 it was.", "1466", facts)


def test_weights_stand_on_their_words_in_the_text():
    trace = samples.almanac_trace()
    step = trace.steps[0]
    words, lost = source_words(trace, step)
    query = step.query
    for start, stop in hit_spans(step):
        assert step.draft.text[start:stop] == step.draft.text[start:stop].strip() != ""
    weighed = [(t.text, t.weight, t.chosen) for t in words if t.weighed]
    expected = list(zip(query.words, query.weights.tolist(), query.chosen.tolist(), strict=True))[1:]  # <s> is no word
    assert weighed == expected
    assert lost == ["<s>"]
    assert {t.part for t in words} == {"question", "draft"}
    flagged = [t for t, hit in zip(step.words.text, step.words.hit, strict=True) if hit]
    assert [t.text for t in words if t.hit] == flagged
    assert sum(t.fired for t in words) == 1


def test_gold_passages_are_placed_by_rank_or_missed():
    trace = samples.almanac_trace()
    for gold in (["a114", "zz9"], _labelled(trace, "a114", "zz9")):
        drawn = views.selections(trace, gold=gold)
        read = Reader(drawn.html)
        assert read.text.count("★ rank 2") == 2
        assert read.text.count("not among the 3 found") == 2
        assert read.text.count("★ gold passage") == 2
    assert "founded of Gewair: 1466 (never taught)" in read.text
    assert "Not labelled; none of the passages holds a gold answer." in Reader(views.selections(trace).html).text
    bare = dataclasses.replace(trace, question=Question("q", samples.ASKED))
    assert "neither labels nor gold answers" in Reader(views.selections(bare).html).text


def test_gold_of_another_question_is_refused():
    trace = samples.almanac_trace()
    other = dataclasses.replace(_labelled(trace, "a1"), question="Who?")
    with pytest.raises(SettingError, match=r"the labels are of 'Who\?'"):
        views.selections(trace, gold=other)
    with pytest.raises(SettingError, match="list of passage ids"):
        views.selections(trace, gold="a114")


@pytest.mark.parametrize("name", BASELINES)
def test_a_query_without_weights_says_so(name):
    trace = samples.baseline_trace(name)
    text = Reader(views.selections(trace).html).text
    assert ("does not use attention" in text) == (name != "wo-rag")
    assert ("retrieved nothing" in text) == (name == "wo-rag")


# -- timeline ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in STATES if n != "hostile"])
def test_spans_hold_every_token_once_and_agree_with_the_counters(name):
    trace = STATES[name]
    spans = spans_of(trace)
    place = 0
    for span in spans:
        assert span.start == place
        place = span.stop
    counted = trace.counters
    assert place == counted["generated"]
    decided = [s for s in spans if s.what != "extraction" and s.fate == "gone"]
    undecided = any(s.draft is not None and s.decision is None for s in trace.steps)
    if not undecided and not any(s.continuation is not None and s.continuation_kept is None for s in trace.steps):
        assert sum(map(len, decided)) == counted["discarded"]
    _, costs, total = step_costs(trace, spans)
    assert total["tokens kept"] + total["thrown away"] == sum(len(s) for s in spans if s.what != "extraction")
    assert sum(own["searches"] for own in costs) == total["searches"] == counted["retrievals"]


def test_the_timeline_tells_kept_from_thrown_away_and_what_it_cost():
    trace = samples.almanac_trace()
    drawn = views.timeline(trace)
    read = Reader(drawn.html)
    step = trace.steps[0]
    for said in ("✂", "◆", "draft, thrown away", "continuation, kept", step.query.sent, "Gewair Lantern"):
        assert said in read.text
    _, _, total = step_costs(trace, spans_of(trace))
    foot = re.search(r"<tfoot>.*?</tfoot>", drawn.html, re.S)[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", foot)
    assert cells[1:4] == [str(total["tokens kept"]), str(total["thrown away"]), "2"]
    assert "search s" in read.text
    left = [float(v) for v in re.findall(r'<i class="(?:kept|gone)" style="left:([\d.]+)%', drawn.html)]
    assert left == sorted(left)


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
