"""The static views beside the trace's own: what they say, that they are safe, in every state of a trace."""

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
from dragin_lab.trace.trace import Passage, Question, Step, Trace
from dragin_lab.views.heat import scale_of
from dragin_lab.views.html import esc
from dragin_lab.views.methods import align_sentences, names_of, sentence_likeness
from dragin_lab.views.rendering import load_export_script, load_stylesheet, render_macro
from dragin_lab.views.selections import hit_spans, source_tokens
from dragin_lab.views.strip import Column, axes_of, break_lines, strip_columns, text_direction
from dragin_lab.views.timelines import cost_of, spans_of
from dragin_lab.views.tokens import Look

VIEWS = {
    "heatmap": views.heatmap,
    "selections": views.selections,
    "timeline": views.timeline,
    "side_by_side": lambda trace: views.side_by_side([trace, trace]),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", STATES)
def test_every_state_renders_whole_without_script_or_network(name, view):
    drawn = VIEWS[view](STATES[name])
    for html in (drawn.html, drawn.page()):
        html.encode()  # no lone surrogates
        read = Reader(
            html.replace(f"<script>{load_export_script()}</script>", "")
        )  # reading needs no script; exporting does
        assert "could not be shown" not in read.text
        assert {tag for tag, _ in read.tags}.isdisjoint({"script", "img", "link", "iframe", "object", "svg"})
        for _, attrs in read.tags:
            assert attrs.keys().isdisjoint({"src", "onerror", "onclick", "srcset", "background"})
            assert attrs.get("href", "#").startswith("#")
    assert re.search(r'<pre class="alt">(.*?)</pre>', drawn.html, re.S)[1] == esc(drawn.text)
    assert VIEWS[view](STATES[name]).html == drawn.html
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for _, attrs in read.tags if "href" in attrs} <= set(ids)


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_text_is_shown_as_text(view):
    drawn = VIEWS[view](hostile_trace())
    assert "<script" not in drawn.html
    assert "\x1b" not in drawn.html
    assert "<script>alert('x')</script>" in Reader(drawn.html).text


def test_views_show_print_and_repeat_themselves_as_methods():
    trace = samples.almanac_trace()
    for drawn, own in (
        (views.heatmap(trace), trace.heatmap()),
        (views.selections(trace), trace.selections()),
        (views.timeline(trace), trace.timeline()),
    ):
        assert own == drawn
        assert drawn._repr_html_() == f"{drawn.html}<script>{load_export_script()}</script>"
        assert str(drawn) == drawn.text
        assert len(repr(drawn)) < 250
        assert drawn.page().startswith("<!DOCTYPE html>")
        assert f"<title>{esc(drawn.title)}</title>" in drawn.page()


def test_sheets_fetch_nothing():
    for name in ("strip", "qfs", "timeline", "methods"):
        css = load_stylesheet(name)
        assert not re.search(r"url\(|@import|https?:", css)
        base = load_stylesheet()
        assert css.startswith(base)
        # Views stand together on one page: a sheet's rules are all for cards of its own name.
        assert re.fullmatch(rf"\.dl-out \.v-{name}\{{.*\}}", css[len(base) :].strip())
        assert css.count("{") == css.count("}")


@pytest.mark.parametrize("view", ["heatmap", "selections", "timeline"])
def test_a_file_that_holds_no_trace_says_so_in_place(view, tmp_path):
    trace = samples.almanac_trace()
    whole = trace.save(tmp_path / "whole.trace").read_bytes()
    (tmp_path / "cut.trace").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "newer.trace").write_bytes(whole.replace(b'"version":"3"', b'"version":"9"', 1))
    for name, says in (("cut", "only a part of one"), ("newer", "format 9"), ("absent", "no such file")):
        drawn = getattr(views, view)(tmp_path / f"{name}.trace")
        read = Reader(drawn.html)
        assert says in read.text
        assert says in drawn.text
        assert any(attrs.get("role") == "alert" for _, attrs in read.tags)
    assert getattr(views, view)(tmp_path / "whole.trace").html == getattr(views, view)(trace).html
    with pytest.raises(SettingError, match="not int"):
        getattr(views, view)(7)


# -- heatmap ----------------------------------------------------------------------------------------------------------


def _columns(trace: Trace) -> tuple[Look, list[Column]]:
    step = trace.steps[0]
    look = Look.of(step.draft, step.words, scale_of(trace), step.decision, trace.method["variant"] == "reference")
    return look, strip_columns(look, 0, len(step.draft.text), step.decision.cut)


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
    look, cols = _columns(trace)
    axes = axes_of([look])
    html = render_macro("strip.html", "strip", look, cols, axes)
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
        [said] = look.reckoned(word)
        product, total = said.split(" = score ")
        factors = [float(part.split()[-1]) for part in product.split(" × ")]
        assert float(total) == pytest.approx(np.prod(factors), rel=2e-3, abs=1e-6)
        assert ("sentence" in product) == (variant == "reference")
    own = dataclasses.replace(look, words=dataclasses.replace(step.words, score=np.sqrt(step.words.entropy)))
    assert all("=" not in said for word in range(len(own.words)) for said in own.reckoned(word))


def test_a_trigger_that_is_not_known_here_gives_its_name_to_the_score():
    for when, named in (("margin", "margin score"), ("entropy", "entropy score")):
        trace = samples.almanac_trace()
        trace.method["when"] = when
        del trace.method["measure"]  # as in traces of the first edition
        assert scale_of(trace).name == named
        assert named in Reader(views.heatmap(trace).html).text


def test_the_legend_says_what_is_judged_and_what_the_frame_means():
    for variant, unit in (("reference", "sentence"), ("paper", "word")):
        text = Reader(views.trace_html(samples.almanac_trace(variant))).text
        assert "framed the token that fired" in " ".join(text.split())
        assert f"Judging ends with the first {unit} that fires" in text
    assert "Judging ends" not in views.trace_html(samples.baseline_trace("fs-rag"))


def test_lines_break_between_words_and_hold_every_column():
    _, cols = _columns(samples.almanac_trace())
    for limit in (12, 30, 84):
        found = list(break_lines(cols, limit))
        assert [c for line in found for c in line] == cols
        for line in found[1:]:
            assert line[0].opens or sum(c.width for c in line) + 2 >= min(limit, 6)
        assert all(sum(c.width for c in line) <= max(limit, 4) for line in found)


def test_text_keeps_the_rows_under_the_tokens():
    text = views.heatmap(samples.almanac_trace()).text
    step = text[text.index("Step 1: draft") : text.index("Step 1: continuation")]
    blocks = [block.splitlines() for block in step.split("\n", 1)[1].strip().split("\n\n")]
    names = ["tokens", "entropy", "attention", "stop word", "score", "above θ"]
    for block in blocks:
        assert [line[:13].strip() for line in block] == names[: len(block)]
        assert set(block[1][13:] + block[2][13:] + block[4][13:]) <= set(" ▁▂▃▄▅▆▇█")
    tokens, *_, above = next(block for block in blocks if len(block) == 6)
    assert above[tokens.index("◆")] == "^"


@pytest.mark.parametrize(
    ("text", "way"), [("The film", "ltr"), ("שלום The", "rtl"), ("123 مرحبا", "rtl"), ("12 !", "ltr")]
)
def test_the_axis_runs_as_its_text_does(text, way):
    assert text_direction(text) == way


def test_right_to_left_and_emoji_texts_keep_their_tokens():
    text = "שלום 👩‍🚀 עולם"
    made = samples.make(text, [(0, 4), (4, 8), (8, len(text))])
    trace = Trace(Question("q", text), {"name": "wo-rag"}, [Step(0, draft=made, kept=text)], text, text)
    html = views.heatmap(trace).html
    assert 'dir="rtl"' in html
    for token in ("שלום", "👩‍🚀", "עולם"):
        assert f">{token}</b>" in html


@pytest.mark.parametrize(("tokens", "per_draft"), [(2000, 60), (2000, 2000), (5000, 60), (5000, 5000)])
def test_long_traces_stay_within_the_budget_and_say_what_is_left_out(tokens, per_draft):
    trace = samples.long_trace(tokens, per_draft)
    made = sum(map(len, trace.continuations))
    html = views.heatmap(trace).html
    read = Reader(html)
    assert len(html.encode()) <= 1_500_000
    drawn = sum("data-i" in attrs for _, attrs in read.tags)
    assert drawn <= 2000
    if made <= 2000:
        assert drawn == made
    else:
        assert f"of {made:,} tokens are drawn one by one" in read.text
    if tokens > 40 * per_draft:
        assert "more steps; trace.tokens has every token" in read.text


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
    words, lost = source_tokens(trace, step)
    query = step.query
    weighed = [(t.text, t.weight, t.chosen) for t in words if t.weighed]
    expected = list(zip(query.words, query.weights.tolist(), query.chosen.tolist(), strict=True))[1:]  # <s> is no word
    assert weighed == expected
    assert lost == ["<s>"]
    assert {t.part for t in words} == {"question", "draft"}
    flagged = [t for t, hit in zip(step.words.text, step.words.hit, strict=True) if hit]
    assert [t.text for t in words if t.hit] == flagged
    assert sum(t.fired for t in words) == 1


def test_hits_do_not_reach_into_the_word_before_them():
    step = samples.almanac_trace("paper").steps[0]
    for start, stop in hit_spans(step):
        assert step.draft.text[start:stop] == step.draft.text[start:stop].strip() != ""


def test_the_query_is_told_from_the_hit_to_the_passages():
    trace = samples.almanac_trace()
    text = Reader(views.selections(trace).html).text
    story = ["Step 1", "Looked at", "Lantern0.143", "Query", trace.steps[0].query.sent, "10 of 11", "score 21.4"]
    places = [text.index(word) for word in story]
    assert places == sorted(places)


def test_gold_passages_are_placed_by_rank_or_missed():
    trace = samples.almanac_trace()
    for gold in (["a114", "zz9"], _labelled(trace, "a114", "zz9")):
        drawn = views.selections(trace, gold=gold)
        read = Reader(drawn.html)
        assert read.text.count("★ rank 2") == 2
        assert read.text.count("not among the 3 found") == 2
        assert read.text.count("★ gold passage") == 2
        assert "not found     zz9" in drawn.text
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


def test_a_long_answer_is_cut_visibly():
    trace = samples.almanac_trace()
    trace.steps[0].answer = "word " * 5000
    html = views.selections(trace).html
    assert "earlier words …" in html
    assert len(html) < 100_000


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
    costs = [cost_of(trace, step) for step in trace.steps]
    own = sum(len(s) for s in spans if s.what != "extraction")
    assert sum(c.kept + c.gone for c in costs) == own
    assert sum(c.searches for c in costs) == counted["retrievals"]


def test_the_timeline_tells_kept_from_thrown_away_and_what_it_cost():
    trace = samples.almanac_trace()
    drawn = views.timeline(trace)
    read = Reader(drawn.html)
    step = trace.steps[0]
    for said in ("✂", "◆", "draft, thrown away", "continuation, kept", step.query.sent, "Gewair Lantern"):
        assert said in read.text
    costs = [cost_of(trace, s) for s in trace.steps]
    foot = re.search(r"<tfoot>.*?</tfoot>", drawn.html, re.S)[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", foot)
    assert cells[1:4] == [str(sum(c.kept for c in costs)), str(sum(c.gone for c in costs)), "2"]
    assert "search s" in read.text
    left = [float(v) for v in re.findall(r'<i class="(?:kept|gone)" style="left:([\d.]+)%', drawn.html)]
    assert left == sorted(left)


def test_a_long_episode_is_told_in_part_and_summed_in_full():
    trace = samples.long_trace(5000, 50)
    drawn = views.timeline(trace)
    text = Reader(drawn.html).text
    assert "… 40 more steps with 2,000 tokens, not drawn" in text
    assert "The sum counts all 100 steps." in text
    assert len(drawn.html) < 300_000


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


def test_every_retrieval_is_shown_once():
    for name in ("fs-rag", "fl-rag", "sr-rag"):
        trace = samples.baseline_trace(name)
        shown = Reader(views.side_by_side([trace]).html).text.count("asked: ")
        assert shown == trace.counters["retrievals"]
    for variant in ("reference", "paper"):
        trace = samples.almanac_trace(variant)
        assert Reader(views.side_by_side([trace]).html).text.count("asked: ") == trace.counters["retrievals"]


def test_names_say_what_differs_and_no_more():
    one, two = samples.almanac_trace(), samples.almanac_trace("paper")
    three = dataclasses.replace(one, method=one.method | {"threshold": 0.8})
    assert names_of([one, samples.baseline_trace("wo-rag")]) == ["dragin", "wo-rag"]
    assert names_of([one, two]) == ["dragin, reference", "dragin, paper"]
    assert names_of([one, two, three]) == ["dragin, reference, θ 1.2", "dragin, paper", "dragin, reference, θ 0.8"]
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


def test_passages_of_html_stay_text_everywhere():
    trace = samples.almanac_trace()
    trace.steps[0].passages = (Passage("<b>", "<script>t</script>", "<script>alert(1)</script>", 1.0),)
    for view in VIEWS.values():
        assert "<script" not in view(trace).html
