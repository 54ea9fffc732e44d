"""The pages of a trace, its overview and comparisons: what they say, that they are safe and
whole, in every state.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import view_samples as samples
from answering import DRAGIN
from scripted import QUESTION, Say, ScriptedModel, ScriptedRetriever, drive
from view_samples import STATES, Reader

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.catalog.by_name import method
from dragin_lab.errors import DataError, SettingError
from dragin_lab.study.whatif import Replay
from dragin_lab.trace.trace import Decision, Passage, Prompt, Query, Question, Step, Trace
from dragin_lab.views import facts
from dragin_lab.views.comparing import Sentence, align_sentences
from dragin_lab.views.facts import esc
from dragin_lab.views.overview_page import CARRY, LINES, find_lines
from dragin_lab.views.pages import OUTSIDE, load_stylesheet
from dragin_lab.views.texts import BELOW, LEVELS, Texts, find_bounds, find_levels, read_pieces

PAGES = {"trace": views.trace, "compare": lambda trace: views.compare([trace, trace])}


def read(page: views.Page) -> str:
    """What a person reads in a page."""
    return " ".join(Reader(page.html).text.split())


def tips(html: str) -> list[str]:
    """What its tokens say on hover."""
    return re.findall(r'data-i="([^"]*)"', html)


# -- every page, in every state --------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", STATES)
def test_every_state_renders_whole_without_script_or_network(name, page):
    drawn = PAGES[page](STATES[name])
    drawn.html.encode()  # no lone surrogates
    assert "\x1b" not in drawn.html + drawn.text
    assert 'class="dl-out mathjax_ignore' in drawn.html
    shown = Reader(drawn.html)
    assert name != "hostile" or "<script>document.title = 'x'</script>" in shown.text
    assert {tag for tag, _ in shown.tags}.isdisjoint(
        {"script", "img", "link", "iframe", "object", "svg"}
    )
    for _, attrs in shown.tags:
        assert attrs.keys().isdisjoint({"src", "onerror", "onclick", "srcset", "background"})
        assert attrs.get("href", "#").startswith("#")
    # Where a notebook is not trusted, styles are dropped, and the text is what shows.
    assert re.search(r'<pre class="alt">(.*?)</pre>', drawn.html, re.S)[1] == esc(drawn.text)
    assert PAGES[page](STATES[name]).html == drawn.html
    ids = [attrs["id"] for _, attrs in shown.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for _, attrs in shown.tags if "href" in attrs} <= set(ids)


def test_a_trace_shows_as_its_page_and_where_there_is_no_html_as_its_text():
    trace = samples.almanac_trace()
    page = views.trace(trace)
    assert trace._repr_html_() == page._repr_html_() == page.html
    bundle = trace._repr_mimebundle_()
    assert bundle == {"text/html": page.html, "text/plain": views.trace_text(trace)}
    assert str(page) == page.text == views.trace_text(trace)


def test_the_style_sheet_fetches_nothing():
    css = load_stylesheet()
    assert not re.search(r"url\(|@import|https?:", css)
    assert css.count("{") == css.count("}")


# -- one file of several parts ---------------------------------------------------------------------


def test_a_page_is_one_file_with_the_script_of_its_figures_beside_it(tmp_path: Path):
    trace = samples.almanac_trace()
    path = views.page(
        tmp_path / "a.html", trace, trace.heatmap(), pd.DataFrame({"em": [0.5]}), inline=False
    )
    text = path.read_text()
    assert '<script src="plotly.min.js">' in text
    assert f"<title>{esc(trace.question.text)}</title>" in text
    assert "<td>0.500</td>" in text
    assert (tmp_path / "plotly.min.js").stat().st_size > 10**6
    (tmp_path / "in").mkdir()
    inline = views.page(tmp_path / "in" / "b.html", trace.heatmap()).read_text()
    assert len(inline) > 10**6
    assert [one.name for one in (tmp_path / "in").iterdir()] == ["b.html"]
    assert "<script" not in views.page(tmp_path / "c.html", trace).read_text()


def test_a_wide_part_is_scrolled_and_not_cut(tmp_path: Path):
    finished = dl.Runs.load(Path(__file__).parents[2] / "corpora" / "almanac_methods.zip")
    found = finished.difference(*finished.names[:2])
    text = views.page(tmp_path / "a.html", found, found.table).read_text()
    cards = text.split(OUTSIDE)[1:]
    assert [card.count("<table") for card in cards] == [1, 1]
    assert all('<div class="head wide" tabindex="0">' in card for card in cards)


def test_what_is_no_part_and_what_cannot_be_written_is_refused(tmp_path: Path):
    with pytest.raises(SettingError, match="nothing to write"):
        views.page(tmp_path / "a.html")
    with pytest.raises(SettingError, match="no part of a page"):
        views.page(tmp_path / "a.html", 7)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError):
        views.page(tmp_path / "file" / "a.html", samples.almanac_trace())


# -- the trace -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATES)
def test_text_and_page_list_the_same_parts(name):
    trace = STATES[name]
    expected = [part for step in trace.steps for part in facts.step_parts(step)]
    page = views.trace(trace)
    assert [part for part in Reader(page.html).parts() if part in facts.PARTS] == expected
    lines = page.text.split("\nStep ", 1)
    titles = {title: part for part, title in facts.PARTS.items()}
    listed = (
        [titles[m[1]] for m in re.finditer(r"^(\w+)", lines[-1], re.M) if m[1] in titles]
        if trace.steps
        else []
    )
    if trace.notes:
        assert listed.pop() == "notes"
    assert listed == expected


def test_the_story_is_told_in_order_with_its_numbers():
    text = read(views.trace(samples.almanac_trace()))
    story = [
        samples.ASKED,
        "✓ right",
        "gold: 1466",
        "2 retrievals",
        "θ 1.2",
        "scripted",
        "RIND score",
        "Step 1",
    ]
    story += ["cut here", "Retrieve:", "10 of 17 candidates", "score 21.4", "Step 2"]
    places = [text.index(said) for said in story]
    assert places == sorted(places)
    assert text.count("Is the sky blue?") == 1, "exemplars are written out once"
    assert "✗ wrong" in read(views.trace(samples.baseline_trace("fs-rag")))


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_hits_and_what_was_thrown_away_are_marked_by_more_than_colour(variant):
    trace = samples.almanac_trace(variant)
    step, page = trace.steps[0], views.trace(trace)
    hits = [text for text, hit in zip(step.words.text, step.words.hit, strict=True) if hit]
    draft = page.html[
        page.html.index('data-part="draft"') : page.html.index('data-part="decision"')
    ]
    marks = [Reader(m).text for m in re.findall(r'<mark class="hit".*?</mark>', draft, re.S)]
    assert [mark.removeprefix("◆hit: ") for mark in marks] == hits != []
    assert all(f"⟦{hit}⟧" in page.text for hit in hits)
    rule = re.search(r"\.hit \{([^}]*)\}", load_stylesheet())[1]
    assert "font-weight" in rule
    assert "underline" in rule
    kept, thrown = (re.sub(r"<[^>]+>", "", part) for part in draft.split('<del class="cut">'))
    assert step.draft.text[: step.decision.cut].strip() in kept
    assert "cut here" in kept
    assert ("Bealtha." in kept, "Bealtha." in thrown) == (False, True)
    # Each token has its figures on hover.
    assert len(tips(draft)) == len(step.draft)
    assert all("entropy" in tip and "likeliest: " in tip for tip in tips(draft))
    assert all(any(flag in tip for tip in tips(draft)) for flag in ("stop word", "HIT"))


@pytest.mark.parametrize(
    ("unit", "peaks"), [("sentence", (1.7, 0.25)), ("draft", (1.7,)), ("draft", (float("nan"),))]
)
def test_the_unit_is_in_brackets_with_its_score_and_no_word_is_a_hit(unit, peaks):
    trace = samples.judged_whole(unit, peaks)
    trace.steps = trace.steps[:1]
    page = views.trace(trace)
    assert "◆</span><bdi" not in page.html
    scored = [peak for peak in peaks if peak == peak]
    assert page.html.count('<bdi class="bracket tag') == len(scored)
    drawn = page.text.split("\nDraft")[1]
    assert drawn.count("⟦") == drawn.count("⟧") == len(scored)
    if scored:
        name = "sentence 1" if unit == "sentence" else "draft"
        assert f"{name}: 1.7 &gt; θ 1.2" in page.html


def test_right_to_left_emoji_and_split_characters():
    text = "שלום 👩‍🚀 עולם مرحبا"
    star = text.index("👩")
    spans = [
        (0, 0),
        (0, 4),
        (4, star),
        (star, star + 1),
        (star, star + 1),
        (star + 1, star + 3),
        (star + 3, len(text)),
    ]
    draft = samples.make(text, spans)
    draft.pieces = ("▁", *draft.pieces[1:])  # a marker alone shows nothing
    trace = Trace(
        Question("q", text, (text,)),
        {"name": "wo-rag"},
        [Step(0, draft=draft, kept=text)],
        text,
        text,
    )
    pieces = read_pieces(Texts(trace), trace.steps[0], "draft")
    assert [row["tokens"] for kind, _, row in pieces if kind == "token"] == [1, 1, 2, 1, 1]
    shown = Reader(views.trace(trace).html)
    assert "2 tokens make this character" in views.trace(trace).html
    assert shown.text.count(text) >= 2
    assert all(a.get("dir") == "auto" for tag, a in shown.tags if a.get("class") in ("txt", "q"))


@pytest.mark.parametrize(("tokens", "per_draft"), [(1980, 60), (2520, 60), (2100, 2100)])
def test_long_traces_are_coloured_as_far_as_there_is_room_and_say_so(tokens, per_draft):
    trace = samples.long_trace(tokens, per_draft)
    written = sum(map(len, trace.continuations))
    html = views.trace(trace).html
    assert len(html.encode()) <= 1_800_000
    assert len(tips(html)) <= 2000
    assert ("stand uncoloured" in Reader(html).text) == (written > 2000)
    assert ("more steps" in Reader(html).text) == (tokens > 40 * per_draft)


def test_long_texts_are_cut_visibly():
    trace = samples.almanac_trace()
    huge = "word " * 100_000
    step = trace.steps[0]
    step.passages = (Passage("big", "big", huge), *(Passage(str(i), "t", "x") for i in range(200)))
    step.prompt = Prompt(huge, {"question": (0, len(huge))})
    step.query = Query(
        huge, huge[:-1], tuple("abcdefghij" * 100), np.ones(1000, np.float32), np.ones(1000, bool)
    )
    html = views.trace(trace).html
    assert len(html) < 300_000
    for more in ("more characters", "more passages", "more words"):
        assert more in html


@pytest.mark.parametrize(
    ("theta", "known", "values", "levels"),
    [
        (
            1.0,
            [0.0, 4.0],
            [np.nan, 0.0, -1.0, 0.01, 1.0, 1.001, 4.0],
            [0, 0, 0, 1, BELOW, BELOW + 1, LEVELS],
        ),
        (np.nan, [0.0, 4.0], [0.1, 3.9], [1, LEVELS]),
        (1.0, [0.0, 0.5], [0.1, 0.5], [1, 3]),
        (-1.0, [-5.0, 2.0], [-5.0, -1.0, 2.0], [0, BELOW, LEVELS]),
    ],
)
def test_levels_show_the_threshold(theta, known, values, levels):
    bounds = find_bounds(np.array(known), theta)
    assert bounds[-1] == max([*known, theta] if theta == theta else known)
    assert find_levels(np.array(values), bounds).tolist() == levels


def test_words_that_may_not_fire_are_drawn_as_not_judged():
    loud = {"entropy": {"Bo": 4.5, "Li": 3.0}, "received": {"Bo": 0.2, "Li": 0.2}}
    scripts = [
        Say(" It is Bo Ek, a man", **loud),
        Say(" Bo Ek. He is Li, a man", **loud),
        Say(" Li."),
        Say("Li"),
    ]
    trace = drive(method("dragin", what="question"), *scripts).trace
    drawn = views.trace(trace).html
    about = [tip for tip in tips(drawn) if "word “Bo”" in tip]
    assert [("HIT" in tip, "not judged" in tip) for tip in about] == [(True, False), (False, True)]
    for theta, hits in ((0.25, ["Bo", "Li"]), (0.7, ["Bo"]), (50.0, [])):
        html = views.replayed(Replay(trace).at(threshold=theta)).html
        marks = re.findall(r'<mark class="hit" tabindex.*?</mark>', html, re.S)
        assert [re.sub(r"<bdi.*?</bdi>|<[^>]*>", "", mark).strip("◆ ,") for mark in marks] == hits


def test_what_is_not_known_at_another_threshold_is_a_question_mark():
    trace = samples.almanac_trace("paper")
    outcome = Replay(trace).at(threshold=9.0)
    assert not outcome.whole
    head = Reader(views.replayed(outcome).html).text.split("Colour:")[0]
    assert trace.answer not in head.split("gold:")[0]
    assert "thrown away" not in head
    assert "Answer?" in re.sub(r"\s", "", head)
    assert "◆ drafted" not in Reader(views.replayed(outcome).html).text
    whole = Reader(views.replayed(Replay(trace).at()).html).text.split("Colour:")[0]
    assert trace.answer in whole.split("gold:")[0]


def test_gold_answers_are_found_as_whole_words():
    passage = Passage("p", "Gewair", "It was founded in 1388.")
    assert facts.holds_gold(passage, ("1388",))
    assert facts.holds_gold(Passage("p", "Beyonc\u00e9", ""), ("Beyonce\u0301",))
    assert not facts.holds_gold(passage, ("138", ""))


def test_a_long_list_among_settings_is_counted():
    assert facts.setting_text([*range(12)]).endswith("10, 11")
    assert facts.setting_text([*range(13)]) == "13 values"


def test_text_is_wrapped_and_coloured_on_request_only():
    trace = samples.almanac_trace()
    for width in (40, 60, 100):
        assert max(map(len, views.trace_text(trace, width=width).splitlines())) <= width
    plain, coloured = views.trace_text(trace), views.trace_text(trace, color=True)
    assert "\x1b[" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


# -- numbers of steps ------------------------------------------------------------------------------


def test_a_step_has_one_number_in_calls_tables_and_pictures():
    loud = {"entropy": {"Bo": 9.0}, "received": {"Bo": 0.5}}
    model = ScriptedModel(
        (Say(" He left. It is by Bo Ek, a man", **loud), Say(" Li. So the answer is Li."))
    )
    lab = dl.Lab(model, retriever=ScriptedRetriever())
    trace = lab.ask(QUESTION, method("dragin", what="question"), gold="Li")
    (retrieved,) = trace.retrievals["step"].unique()
    assert f"\nStep {retrieved} ◆ drafted, then retrieved" in views.trace(trace).text
    assert f"◆ {retrieved} asked: " in views.compare([trace]).text
    assert f"Step {retrieved} asks" in trace.selections().layout.title.text
    model.script[:] = [Say(" Li. So the answer is Li.")]
    branch = lab.branch(trace, step=retrieved, query="another thing")
    assert str(branch.parting).startswith(f"step {retrieved}: query")
    assert f"parts at step {retrieved}" in read(views.trace(branch))


# -- comparisons -----------------------------------------------------------------------------------


def test_sentences_that_say_the_same_stand_in_one_slot():
    texts = [
        ["The film was directed by Ann.", "Ann was born in 1901.", "So the answer is 1901."],
        ["The film was directed by Bob.", "So the answer is 1950."],
        [
            "Once upon a time.",
            "The film was directed by Cem.",
            "Cem was born in 1920.",
            "So the answer is 1920.",
        ],
        [],
    ]
    assert align(texts) == [
        [None, None, texts[2][0], None],
        [texts[0][0], texts[1][0], texts[2][1], None],
        [texts[0][1], None, texts[2][2], None],
        [texts[0][2], texts[1][1], texts[2][3], None],
    ]
    assert align([[], []]) == []
    spaceless = ["他出生于里加。", "他出生在里加。"]  # a language that sets no spaces
    assert align([[text] for text in spaceless]) == [spaceless]


def align(texts: list[list[str]]) -> list[list[str | None]]:
    sentences = [[Sentence(text, [], []) for text in of_trace] for of_trace in texts]
    return [
        [sentence and sentence.text for sentence in slot] for slot in align_sentences(sentences)
    ]


def test_methods_stand_under_each_other_with_their_differences():
    traces = [
        samples.baseline_trace("wo-rag"),
        samples.almanac_trace(),
        samples.baseline_trace("fs-rag"),
    ]
    drawn = views.compare(traces)
    for said in (
        "wo-rag",
        "dragin",
        "fs-rag",
        "◆ 1",
        "asked: When was",
        "instead of",
        "✓ right",
        "✗ wrong",
    ):
        assert said in read(drawn)
    assert "<ins>" in drawn.html
    assert "dragin-reference-top_n=10  1466  (✓ right)" in drawn.text
    assert views.compare(*traces).html == drawn.html


def test_a_trace_is_called_by_its_methods_label_whatever_stands_beside_it():
    one = samples.almanac_trace()
    other = dataclasses.replace(one, method=one.method | {"threshold": 0.8})
    own = dataclasses.replace(
        one, method=one.method | {"when": "not-defined-here", "label": "mine"}
    )
    page = views.compare([one, other, own, own])
    for name in (
        "dragin-reference-top_n=10",
        "dragin-reference-threshold=0.8-top_n=10",
        "mine #1",
        "mine #2",
    ):
        assert f"\n{name}" in page.text


def test_what_cannot_be_compared_is_refused(tmp_path):
    one = samples.almanac_trace()
    other = dataclasses.replace(one, question=Question("q", "Who?"))
    for traces, labels, says in (
        ([], None, "0 traces"),
        ([one] * 17, None, "17 traces"),
        ([one, other], None, "different questions"),
        ([one], ["a", "b"], "2 labels"),
        (7, None, "give a list"),
    ):
        with pytest.raises(SettingError, match=says):
            views.compare(traces, labels=labels)
    one.save(tmp_path / "a.trace")
    assert "mine" in views.compare([tmp_path / "a.trace"], labels=["mine"]).text


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
    assert gone.strip().startswith(
        "Bealtha." if variant == "paper" else "Graizond Loththaimpan was born in"
    )


def test_words_are_whole_fire_and_carry_their_mark():
    script = [Say(" It is by Bo Ek, a man", **LOUD), Say(" Li Ann. So the answer is Li.")]
    trace = dl.Lab(ScriptedModel(script), retriever=ScriptedRetriever()).ask("Who?", DRAGIN)
    page = trace.overview({(2, "draft", 1): "1", (1, "draft", 1): "no passage was in view here"})
    assert page.html.count('<sup class="from">1</sup>') == 1 == page.html.count('class="from"')
    assert "\nIt is by ~[⟦Bo⟧" in page.text
    html = samples.almanac_trace().overview().html
    assert ">Loththaimpan<" in html.replace("Loththaimpan.", "Loththaimpan"), (
        "its tokens are one word"
    )


def test_a_long_trace_is_folded_and_says_what_it_leaves_out():
    trace, found = samples.long_trace(7000, 100), samples.almanac_trace().steps[0]
    for step in trace.steps:
        step.decision, step.query, step.passages = (
            Decision(True, "x", 30),
            found.query,
            found.passages,
        )
    html = trace.overview().html
    assert trace.counters["discarded"] > 6000
    assert html.count('<div class="ln') == LINES
    assert "more word" in html
    assert re.search(r"⋯ 5\d steps more: 5\d retrievals, [\d,]+ of [\d,]+ tokens thrown away", html)


def test_an_empty_episode_says_so():
    assert "nothing written yet" in dl.Trace(dl.Question("q", "Who?"), {}).overview().html
    assert set(views.__all__) == set(dir(views))
