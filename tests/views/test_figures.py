"""The figures: they show the data that they are given, say on hover all that is known, and read
on any page.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path

import factories
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import view_samples as samples
from answering import embedded
from scripted import WordTokenizer
from view_samples import STATES, hostile_trace

import dragin_lab as dl
from dragin_lab import almanac, views
from dragin_lab.core.method import METHODS
from dragin_lab.errors import SettingError
from dragin_lab.study.whatif import Replay
from dragin_lab.trace.draft import Word
from dragin_lab.trace.trace import Trace
from dragin_lab.views import pages, theme
from dragin_lab.views.attribution import attribution_page
from dragin_lab.views.episodes import WordMap, draw_map, find_parts, read_again, written_map
from dragin_lab.views.rows import find_text, token_rows

QUESTION = almanac.questions("2wikimultihopqa")[0]
CORPORA = Path(__file__).parents[2] / "corpora"
PAGE = {"title": "", "script": "", "bodies": [], "css": ""}
OF_A_TRACE = {"heatmap": views.heatmap, "selections": views.selections}


def rows_of(trace: Trace, step: int = 1, source: str = "draft") -> pd.DataFrame:
    return token_rows(trace, *find_text(trace, step, source))


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def texts_of(figure) -> str:
    """Everything that a figure says."""
    return figure.to_json().encode().decode("unicode_escape", errors="replace")


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("figure", OF_A_TRACE)
def test_every_state_of_a_trace_is_drawn_or_says_why_not(figure, name):
    trace = STATES[name]
    if figure == "heatmap" and not trace.continuations:
        with pytest.raises(SettingError, match="nothing is written"):
            views.heatmap(trace)
    elif figure == "heatmap" or trace.continuations or any(step.query for step in trace.steps):
        drawn = OF_A_TRACE[figure](trace)
        assert drawn.layout.title.text
        assert len(drawn.data) or drawn.layout.annotations[0].text
        assert drawn.layout.legend.yref != "container" or 0 <= drawn.layout.legend.y <= 1


@pytest.fixture(scope="module")
def every_figure(tmp_path_factory: pytest.TempPathFactory) -> list[go.Figure]:
    """A figure of each kind, of traces in every state."""
    figures = []
    for trace in STATES.values():
        if trace.continuations:
            figures += [trace.heatmap(), trace.selections()]
    figures.append(samples.almanac_trace("paper").heatmap(1, theta=0.5))
    lab = embedded()
    trace = lab.ask(QUESTION, "dragin", variant="paper", threshold=0.25, max_new_tokens=48)
    figures += [lab.fan(trace), lab.attribute(trace).plot(), lab.attribute(trace).flow()]
    folder = tmp_path_factory.mktemp("runs")
    runs = lab.run([QUESTION], "dragin", output=folder, traces=True, progress=False)
    figures.append(runs.doubt(*runs.names))
    finished = dl.Runs.load(CORPORA / "almanac_methods.zip")
    figures += [finished.difference(*finished.names[:2]).plot(), finished.plot()]
    curve = dl.Curve.load(CORPORA / "almanac_curve_dragin.zip")
    figures += [curve.plot(), curve.frontier(), curve.headroom.plot()]
    return [*figures, views.sweep(samples.sweep_table(), paper=True)]


def test_a_bar_covers_its_own_place_and_no_other(every_figure):
    bars = [one for figure in every_figure for one in figure.data if one.type == "bar"]
    assert len(bars) > 50
    for bar in bars:
        assert 0 < bar.width < 1, "plotly's own width is the least gap between a trace's bars"
        across = bar.y if bar.orientation == "h" else bar.x
        numbers = [one for one in across if not isinstance(one, str)]
        assert np.mod(numbers, 1).tolist() == [0] * len(numbers)


def test_what_the_released_code_multiplies_gives_the_score_that_is_drawn():
    trace = embedded().ask(QUESTION, "dragin", variant="reference", max_new_tokens=48)
    entropy, received, *others = trace.heatmap(1).data
    bars = [one for one in others if one.type == "bar"]
    assert bars
    for bar in bars:
        at = np.asarray(bar.x) - 1
        product = np.asarray(entropy.y)[at] * np.asarray(received.y)[at]
        assert product == pytest.approx(np.asarray(bar.y), rel=1e-4, abs=1e-6)


def test_texts_are_texts_neither_markup_nor_formulas():
    assert theme.label("<b>$x$</b>\n") == "&lt;b&gt;&#36;x&#36;&lt;/b&gt;<br>"
    for figure in OF_A_TRACE.values():
        shown = texts_of(figure(hostile_trace()))
        assert "<script" not in shown
        assert "\x1b" not in shown
    assert "<i>" not in texts_of(views.frontier(samples.sweep_table(method=["a", "b", "<i> $x$"])))
    word = Word("<i>", 0, 1)
    assert "<i>" not in texts_of(
        draw_map(WordMap(np.ones((1, 1, 1)), [("draft", word)], [("draft", word)], [0]), "$")
    )


#: In sRGB, of the CSS filter ``hue-rotate(180deg)``.
HUES = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
GROUNDS = {"#ffffff": False, "#111111": True, "#1e1e1e": True}  # whether a page turns colours there


def turn(colour: str) -> str:
    """A colour as ``theme.DARK`` shows it."""
    share = float(re.search(r"invert\(([.\d]+)\) hue-rotate\(180deg\)", theme.DARK)[1])
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    seen = np.clip(HUES @ (share + rgb * (1 - 2 * share)), 0, 1)
    return "#" + "".join(f"{round(255 * one):02x}" for one in seen)


def colours_of(part: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Each colour of a figure, with the name of what has it."""
    if isinstance(part, str):
        yield from ((name, one) for one in re.findall("#[0-9a-f]{6}", part))
    elif isinstance(part, dict):
        for key, value in part.items():
            if key not in ("template", "colorscale", "hoverlabel", "pattern"):
                yield from colours_of(value, name if key == "color" else key)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from colours_of(value, name)


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_texts_and_marks_are_seen_on_a_light_and_on_a_dark_page(every_figure):
    used = {("font", theme.INK)}
    for figure in every_figure:
        used |= set(colours_of(figure.to_plotly_json()))
    used = {(name, colour) for name, colour in used if colour != theme.PAPER}  # it stands on ink
    assert len(used) > 10
    for ground, dark in GROUNDS.items():
        for name, colour in used:
            least = 4.5 if "font" in name else 3.0
            assert contrast(turn(colour) if dark else colour, ground) >= least, (name, colour)
    filters = re.findall(r"invert\(.*?\) hue.*?\)", theme.DARK + pages.render("page.html", **PAGE))
    assert len(filters) == 2, "one look in a notebook and on a page"
    assert len(set(filters)) == 1


def test_looks_differ():
    looks = [theme.style(i) for i in range(12)]
    seen = {(one["marker"]["symbol"], one["line"]["dash"], one["marker"]["color"]) for one in looks}
    assert len(seen) == 12


def test_a_notebook_knows_our_figures_from_others(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    monkeypatch.setattr(go.Figure, "_ipython_display_", lambda figure: shown.append(figure))
    figure = samples.almanac_trace("paper").heatmap(1)
    figure._ipython_display_()
    style, drawn = shown
    assert theme.NAME in style["text/html"]
    assert drawn is figure
    assert figure.layout.template.layout.font.family.startswith(theme.NAME)


# -- a trace ---------------------------------------------------------------------------------------


def test_the_heatmap_draws_what_was_measured_and_says_it_on_hover():
    trace = samples.almanac_trace()
    draft, words = trace.steps[0].draft, trace.steps[0].words
    words.judged = np.arange(len(words)) > 2  # and those behind the one that fired
    rows = rows_of(trace)
    entropy, received, *bars, diamonds = trace.heatmap(1).data
    owner = rows["word"].to_numpy(int)
    shares = words.attention / pd.Series(words.attention).groupby(words.sentence).transform("mean")
    assert entropy.y == pytest.approx(words.entropy[owner])
    assert received.y == pytest.approx(shares.to_numpy()[owner])
    paper = samples.almanac_trace("paper")
    drawn, own = paper.heatmap(1).data, paper.steps[0].draft
    assert drawn[0].y == pytest.approx(own.entropy)
    assert drawn[1].y == pytest.approx(own.received)
    drawn = dict(pair for bar in bars for pair in zip(bar.x - 1, bar.y, strict=True))
    known = {at: score for at, score in enumerate(words.score[owner]) if np.isfinite(score)}
    assert drawn == pytest.approx(known), "each token has one bar"
    assert len(diamonds.x) == words.hit.sum() > 0
    fires, _, hatched, *behind = bars
    assert [bar.name for bar in bars[:3]] == [
        "◆ fires",
        "does not fire",
        "stop word, or may not fire",
    ]
    assert set(rows["word"][rows["spared"]]) == {i for i in range(3) if not words.stop[i]}
    passed = (rows["compared"] > 1.2) & ~(rows["fires"] | rows["stop_word"])
    assert [place - 1 for bar in behind for place in bar.x] == np.flatnonzero(passed).tolist()
    low, high = trace.heatmap(1, theta=9.0).layout.yaxis3.range
    assert low <= 0 < 9 < high, "θ and its name are in the picture"
    assert [place - 1 for place in diamonds.x] == [
        int(start) for start, _ in words.spans[words.hit]
    ]
    assert hatched.marker.pattern.shape == "/"
    assert [place - 1 for place in hatched.x] == np.flatnonzero(
        rows["stop_word"] | rows["spared"]
    ).tolist()
    assert "not judged" in hatched.customdata[0]
    assert rows["cut"].tolist() == (draft.offsets[:, 0] >= trace.steps[0].decision.cut).tolist()
    for says in (
        "token",
        "entropy",
        "attention received",
        "probability",
        "◆ HIT",
        "> θ 1.2",
        "likeliest: ",
    ):
        assert says in fires.customdata[0].replace("&gt;", ">")
    assert trace.heatmap(1).layout.xaxis.ticktext[0] == "The"
    for step, source, says in (
        (9, None, "step"),
        (3, "continuation", "nothing is written"),
        (1, "x", "source"),
    ):
        with pytest.raises(SettingError, match=says):
            trace.heatmap(step, source)
    with pytest.raises(SettingError, match="no extraction"):
        trace.heatmap(source="extraction")
    assert find_text(trace)[1] == "draft"


def test_a_threshold_judges_the_stored_draft_again():
    trace = samples.almanac_trace("paper")
    assert [len(trace.heatmap(1, theta=theta).data[-1].x) for theta in (0.5, 2.0)] == [1, 1]
    assert not trace.heatmap(1, theta=9.0).data[-1].x.size
    assert (
        "≤ θ 9"
        in token_rows(Replay(trace).at(threshold=9.0).judged, *find_text(trace, 1))[
            "about"
        ].str.cat()
    )


@pytest.mark.parametrize("theta", [0.15, 0.2, 0.4])
def test_panels_are_of_the_moment_when_the_score_was_made(theta):
    trace = embedded().ask(QUESTION, "dragin", variant="paper", threshold=0.6, top_n=5)
    judged = Replay(trace).at(threshold=theta)
    entropy, received, *scores, hits = trace.heatmap(1, theta=theta).data
    (at,) = hits.x
    score = {x: y for bar in scores for x, y in zip(bar.x, bar.y, strict=True)}[at]
    assert entropy.y[at - 1] * received.y[at - 1] == pytest.approx(score, rel=1e-5)
    written, stored = len(judged.turns[0].draft), len(trace.steps[0].draft)
    assert at <= written
    for bar in (entropy, received):
        assert bar.marker.opacity.tolist() == [1.0] * written + [0.3] * (stored - written)
    says = ["not written yet" in one for one in entropy.customdata]
    assert says == [False] * written + [True] * (stored - written)


@pytest.mark.parametrize(("unit", "peaks"), [("sentence", (1.7, 0.25)), ("draft", (1.7,))])
def test_a_sentence_or_draft_that_is_judged_as_a_whole_has_one_bar(unit, peaks):
    trace = samples.judged_whole(unit, peaks)
    rows = rows_of(trace)
    inside = rows["sentence"].fillna(-1).eq(0) if unit == "sentence" else np.ones(len(rows), bool)
    assert rows["fires"].tolist() == list(inside)
    assert f"{unit} 1.7 > θ 1.2" in rows["about"][0]
    assert len(trace.heatmap(1).data[-1].x) == 1


@pytest.mark.parametrize("tokens", [0, 2000])
def test_no_tokens_and_two_thousand_are_drawn(tokens):
    trace = samples.long_trace(2000, 2000) if tokens else STATES["nothing written"]
    figure = views.heatmap(trace)
    assert len(figure.data[0].x) == tokens
    assert (figure.layout.xaxis.ticktext is None) == (tokens > 60), "names on hover alone"


def test_selections_place_every_candidate_in_its_text():
    trace = samples.almanac_trace()
    query = trace.steps[0].query
    figure = trace.selections(1)
    weights = {x: y for bar in figure.data for x, y in zip(bar.x, bar.y, strict=True)}
    assert [weights[i] for i in range(len(query.words))] == pytest.approx(query.weights)
    chosen = {x for bar in figure.data if "✓" in bar.name for x in bar.x}
    assert chosen == set(np.flatnonzero(query.chosen))
    parts = find_parts(trace, trace.steps[0])
    assert parts == sorted(parts, key=["question", "answer so far", "draft"].index)
    assert set(parts) == {"question", "draft"}
    assert figure.layout.xaxis.title.text == "10 of 17 candidates chosen"
    query.chosen[:] = True
    assert (
        "all 17 candidates fit, nothing was selected" in trace.selections(1).layout.xaxis.title.text
    )
    for name, says in (("fs-rag", "does not weigh words"), ("wo-rag", "retrieved nothing")):
        assert says in views.selections(samples.baseline_trace(name)).layout.annotations[0].text


# -- attention -------------------------------------------------------------------------------------


def test_the_map_holds_the_attention_that_words_pay():
    trace = factories.make_trace()
    step = next(one for one in trace.steps if one.draft is not None and one.draft.rows is not None)
    words = written_map(trace, step.draft, step.prompt)
    paid, p = step.draft.rows[:, 1:].astype(float), len(step.draft.prompt_ids)
    for i, (_, row) in enumerate(words.rows):
        for j, (_, column) in enumerate(words.columns):
            expected = (
                paid[:, row.start : row.stop, column.start : column.stop].sum(axis=2).mean(axis=1)
            )
            if column.start >= p + row.stop:
                assert np.isnan(words.paid[:, i, j]).all()
            else:
                assert words.paid[:, i, j] == pytest.approx(expected, abs=1e-4)
    figure = trace.attention()
    for place, button in enumerate(figure.layout.updatemenus[0].buttons):
        paid = words.paid.mean(axis=0) if not place else words.paid[place - 1]
        assert np.array(button.args[0]["z"][0], float) == pytest.approx(paid, abs=1e-3, nan_ok=True)
    assert trace.attention(head=words.heads[-1]).data[0].name == f"head {words.heads[-1]}"
    with pytest.raises(SettingError, match="was not captured"):
        trace.attention(head=99)


class Reader:
    """A model that reads any text with attention falling back evenly."""

    tokenizer = WordTokenizer()
    tap = type("Tap", (), {"heads": None})()

    def attend(self, ids):
        rows = np.tril(np.ones((len(ids), len(ids)), np.float32))
        return np.stack([rows / rows.sum(axis=1, keepdims=True)] * 2)


def test_a_model_reads_question_and_answer_again():
    words = read_again("Who is Ann?", "Ann is a poet.", Reader())
    assert [part for part, _ in words.rows].count("question") == 3
    assert words.paid.shape == (2, len(words.rows), len(words.rows))
    figure = samples.almanac_trace().attention(lm=Reader())
    assert "read again" in figure.layout.title.text
    long = dataclasses.replace(
        samples.almanac_trace(), question=dl.Question("q", "Who is she? " * 40)
    )
    assert "The last 80 of" in long.attention(lm=Reader()).layout.title.text
    assert "kept no attention" in samples.almanac_trace().attention().layout.annotations[0].text


# -- results ---------------------------------------------------------------------------------------


def test_a_sweep_has_a_panel_per_measure_with_ticks_at_what_was_tried():
    figure = views.sweep(samples.sweep_table(), paper=True)
    points = [data for data in figure.data if "markers" in data.mode]
    assert len(points) == 6
    ours, paper = points[0], points[3]
    assert list(figure.layout.xaxis.tickvals) == [1.0, 1.2, 1.4]
    assert list(paper.x) == [1.0, 1.1, 1.2, 1.3, 1.4]
    assert paper.y[0] == 0.327
    assert paper.xaxis != ours.xaxis
    assert list(ours.x) == [1.0, 1.2, 1.4]
    assert "exact match 0.280 (0.230 to 0.340)" in ours.customdata[0]


def test_values_that_lie_close_have_ticks_and_hover_but_no_names_over_one_another():
    close = [0.25, 0.26, 0.27, 1.0, 1.2, 1.21]
    figure = views.sweep(
        pd.DataFrame({"value": close, "em": [0.1, 0.2, 0.3, 0.2, 0.1, 0.1]}), measures=["em"]
    )
    assert list(figure.layout.xaxis.tickvals) == close
    assert list(figure.layout.xaxis.ticktext) == ["0.25", "", "", "1", "", "1.21"]
    assert list(figure.data[0].text) == ["", "", "0.30", "", "", "0.10"]
    assert "θ 0.26" in figure.data[0].customdata[1]
    long = [f"near-tie(floor=0.10, cap=0.{at})@0.3" for at in (5, 7)]
    figure = views.sweep(
        pd.DataFrame({"setting": "when", "value": long, "em": [0.2, 0.8]}), measures=["em"]
    )
    assert list(figure.data[-1].x) == list(figure.layout.xaxis.tickvals) == long, (
        "apart behind a common beginning"
    )
    assert figure.layout.xaxis.type == "category"
    assert "lines" not in figure.data[0].mode


def test_an_empty_sweep_is_drawn_and_what_is_no_sweep_is_refused():
    assert "Nothing was run" in views.sweep(pd.DataFrame()).layout.title.text
    table = samples.sweep_table()
    table.loc[0, ["retrievals_low", "retrievals_high"]] = math.nan
    assert np.isfinite(views.sweep(table, measures=["retrievals"]).data[0].y).all()
    with pytest.raises(SettingError, match="leave paper out"):
        views.sweep(samples.sweep_table(setting="top_n"), paper=True)
    with pytest.raises(SettingError, match="lacks the column 'em'; it has value"):
        views.sweep(pd.DataFrame({"value": [1]}))
    with pytest.raises(SettingError, match="takes a table"):
        views.sweep([1])


def test_the_dotted_line_goes_over_what_no_other_beats():
    table = pd.DataFrame(
        {"method": list("abcd"), "retrievals": [0, 1, 2, 2], "em": [0.2, 0.5, 0.4, 0.6], "n": 8}
    )
    figure = views.frontier(table)
    assert list(figure.data[-1].x) == [0, 1, 2]
    assert list(figure.data[-1].y) == [0.2, 0.5, 0.6]
    assert "retrievals a question 1" in figure.data[1].customdata[0].replace("1.000", "1")
    lines = views.frontier(samples.sweep_table(method=["a", "b", "a"]).set_axis([0, 0, 0]))
    assert list(lines.data[0].x) == [1.0, 2.0]
    assert list(lines.data[0].error_y.array) == pytest.approx([0.06, 0.06])


def test_a_method_keeps_its_look_whatever_stands_beside_it():
    table = pd.DataFrame(
        {"method": ["flare", "mine", "dragin"], "retrievals": [0, 1, 2], "em": [0.2, 0.5, 0.4]}
    )
    rows = [table, table.iloc[::-1], table.iloc[1:]]
    looks = [
        {one.name: one.marker.to_plotly_json() for one in views.frontier(part).data[:-1]}
        for part in rows
    ]
    assert looks[0] == looks[1]
    assert looks[2]["dragin"] == looks[0]["dragin"], "another's name moves on, a method's does not"
    assert len({tuple(sorted(map(str, look.items()))) for look in looks[0].values()}) == 3


@pytest.mark.parametrize("size", [2, 7, 28, 56])
def test_no_two_of_a_figure_look_alike(size):
    names = [*METHODS][: size // 2] + [f"dragin {number}" for number in range(size)]
    names = names[:size]
    looks = theme.styles(names)
    colours = {look["marker"]["color"] for look in looks.values()}
    symbols = {look["marker"]["symbol"] for look in looks.values()}
    points = {(look["marker"]["color"], look["marker"]["symbol"]) for look in looks.values()}
    lines = {(look["line"]["color"], look["line"]["dash"]) for look in looks.values()}
    assert len(points) == size
    assert len(lines) == min(size, 28)
    assert len(colours) == min(size, len(theme.COLOURS))
    assert len(symbols) == min(size, len(theme.SYMBOLS))
    for name in METHODS:
        assert theme.styles([name])[name] == theme.style([*METHODS].index(name))


@pytest.fixture(scope="module")
def attribution() -> dl.Attribution:
    lab = embedded()
    return lab.attribute(lab.ask(QUESTION, "dragin", max_new_tokens=48))


def test_each_word_has_the_number_of_its_passage(attribution: dl.Attribution) -> None:
    html = attribution._repr_html_()
    used = attribution.words[attribution.words["mark"] == "passage"]
    assert len(used)
    marked = r'class="from c(\d)[^>]*>([^<>]+)<sup aria-label="from passage (\d+)[^"]*">\3'
    shades = {number: str(shade) for number, shade in attribution.shades.items()}
    expected = [(shades[row.passage], row.word, str(row.passage)) for row in used.itertuples()]
    assert re.findall(marked, html) == expected
    for title, words in attribution.passages[["title", "words"]].to_numpy():
        assert title in html
        assert f"gave: {words}" in html or not words
    assert f"{used.iloc[0]['word']}[{used.iloc[0]['passage']}" in attribution_page(attribution).text


def test_the_page_of_the_trace_has_the_marks(attribution: dl.Attribution) -> None:
    """The same numbers and colours as the attribution, with the titles in the legend."""
    trace, used = attribution.trace, attribution.words[attribution.words["mark"] == "passage"]
    shown = views.trace(trace).html
    numbers = re.findall(r'</span><sup class="from c(\d)">(\d+)', shown)
    kept = used[used["source"] != "extraction"]["passage"]
    assert numbers == [(str(attribution.shades[one]), str(one)) for one in kept]
    for number in attribution.shades:
        assert f"from passage {number}, <bdi>{attribution.by_number[number].title}</bdi>" in shown
    trace.attributed, kept = None, trace.attributed
    assert '<sup class="from' not in views.trace(trace).html
    trace.attributed = kept


def test_the_figure_has_what_the_table_has(attribution: dl.Attribution) -> None:
    *bars, rest = attribution.plot().data
    for (number, shade), bar in zip(attribution.shades.items(), bars, strict=True):
        assert bar.name == f"{number} {attribution.by_number[number].title}"
        given = attribution.tokens[f"passage {number}"].sum()
        assert sum(bar.y) == pytest.approx(given, abs=1e-4)
        assert len(set(bar.x)) == len(bar.x)
        assert bar.marker.color == views.theme.COLOURS[shade]
    assert len({bar.marker.pattern.shape for bar in bars}) == len(bars)
    every = attribution.tokens.filter(regex="^passage ").sum().sum()
    assert sum(sum(bar.y) for bar in (*bars, rest)) == pytest.approx(every, abs=1e-4)


def test_without_a_retrieval_the_figure_says_so() -> None:
    lab = embedded()
    alone = lab.attribute(lab.ask(QUESTION, "wo-rag", max_new_tokens=8))
    assert "No passage was in view" in alone.plot().layout.annotations[0].text
    assert "0 of 0 used" in alone._repr_html_()
