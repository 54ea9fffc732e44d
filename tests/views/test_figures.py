"""The plotly figures: what they draw is what they were given, and they can be read by all eyes on any page."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from types import SimpleNamespace

import factories
import numpy as np
import pandas as pd
import pytest
import view_samples as samples
from scripted import WordTokenizer

from dragin_lab import views
from dragin_lab.errors import MissingPackageError, SettingError, ViewError
from dragin_lab.study import ranking
from dragin_lab.study.needs import Item
from dragin_lab.study.table import Cell, Row, Table
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import figures, still
from dragin_lab.views.attention import WordMap, read_again, written_map
from dragin_lab.views.figures import COLOURS, DASHES, MARKERS, label, style
from dragin_lab.views.heat import contrast
from dragin_lab.views.thresholds import pareto

go = pytest.importorskip("plotly.graph_objects")


# -- looks ------------------------------------------------------------------------------------------------------------

#: Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
EYES = {
    "normal": np.eye(3),
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}


def oklab(colour: str, eye: str) -> np.ndarray:
    """Where a colour lies in OKLab (Ottosson 2020) for this eye."""
    v = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(EYES[eye]) @ linear, 0, 1)
    lms = np.array(
        [
            [0.41222147, 0.53633254, 0.05144599],
            [0.2119035, 0.68069955, 0.10739696],
            [0.08830246, 0.28171884, 0.62997870],
        ]
    )
    lab = np.array(
        [
            [0.21045426, 0.79361779, -0.00407205],
            [1.9779985, -2.4285922, 0.45059371],
            [0.0259040, 0.78277177, -0.80867577],
        ]
    )
    return lab @ np.cbrt(lms @ seen)


@pytest.mark.parametrize("eye", EYES)
def test_colours_lie_apart_for_every_eye(eye):
    places = [oklab(colour, eye) for colour in COLOURS]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)) >= 0.12


def test_lines_and_texts_are_seen_on_light_and_on_dark():
    for back in ("#ffffff", "#111111"):
        assert all(contrast(colour, back) >= 3 for colour in COLOURS)
        assert contrast(figures.INK, back) >= 4


def test_series_differ_in_more_than_colour():
    first = [style(i) for i in range(10)]
    assert len({(s.dash, s.marker) for s in first}) == 10
    assert len({(style(i).colour, style(i).dash) for i in range(len(COLOURS) * len(DASHES))}) == 30
    assert len(MARKERS) > len(COLOURS)


def assert_dressed(figure):
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color == figures.INK
    assert "template" not in figure.to_plotly_json()["layout"] or not figure.layout.template.layout.to_plotly_json()


def test_labels_are_texts_not_tags():
    assert label("<b>a</b> & \x1b") == "&lt;b&gt;a&lt;/b&gt; &amp; ␛"


# -- threshold sweep --------------------------------------------------------------------------------------------------


def sweep_table(**more: object) -> pd.DataFrame:
    table = pd.DataFrame({"setting": "threshold", "value": [1.4, 1.0, 1.2], "n": 200})
    for name, values in (("em", [0.30, 0.28, 0.32]), ("f1", [0.40, 0.38, 0.42]), ("retrievals", [1.0, 3.0, 2.0])):
        table[name] = values
        table[f"{name}_low"], table[f"{name}_high"] = table[name] - 0.05, table[name] + 0.06
    table["tokens"] = [80.0, 100.0, 90.0]
    return table.assign(**more)


PAPER = pd.DataFrame({"threshold": [1.0, 1.2], "em": [0.327, 0.328], "f1": [0.4339, 0.4344], "num": [3.84, 3.697]})


def test_a_sweep_is_drawn_in_order_with_its_intervals():
    figure = views.threshold_sweep(sweep_table())
    assert_dressed(figure)
    assert [t.name for t in figure.data] == ["EM", "F1", "retrievals per question"]
    em = figure.data[0]
    assert list(em.x) == [1.0, 1.2, 1.4]
    assert list(em.y) == [0.28, 0.32, 0.30]
    assert em.error_y.array == pytest.approx([0.06] * 3)
    assert em.error_y.arrayminus == pytest.approx([0.05] * 3)
    assert figure.layout.xaxis2.title.text == "θ"
    assert "200 questions" in figure.layout.title.text
    assert len({(t.line.dash, t.marker.symbol) for t in figure.data}) == 3


def test_the_papers_curve_lies_behind():
    figure = views.threshold_sweep(sweep_table(), paper=PAPER)
    assert [t.name for t in figure.data][:3] == ["EM, paper", "F1, paper", "retrievals per question, paper"]
    assert list(figure.data[2].y) == [3.84, 3.697]
    assert all(t.opacity < 1 for t in figure.data[:3])
    partly = views.threshold_sweep(sweep_table(), paper=PAPER[["threshold", "em"]])
    assert len(partly.data) == 4


def test_a_sweep_object_and_tables_without_intervals_will_do():
    bare = sweep_table()[["value", "em", "f1", "retrievals"]]
    figure = views.threshold_sweep(SimpleNamespace(table=bare))
    assert figure.data[0].error_y.array is None
    top = views.threshold_sweep(sweep_table(setting="top_n"))
    assert top.layout.xaxis2.title.text == "top n"


def test_tables_that_cannot_be_drawn_say_what_is_wrong():
    with pytest.raises(SettingError, match="lacks the column 'em'"):
        views.threshold_sweep(sweep_table().drop(columns="em"))
    with pytest.raises(SettingError, match="not list"):
        views.threshold_sweep([1])
    with pytest.raises(SettingError, match="lacks the column 'value'"):
        views.threshold_sweep(sweep_table(), paper=PAPER[["em"]])
    for figure in (views.threshold_sweep(sweep_table()[:0]), views.cost_quality(pd.DataFrame())):
        assert "no rows" in figure.layout.annotations[0].text
        assert_dressed(figure)


def test_the_frontier_holds_what_nothing_beats():
    cost, quality = np.array([1, 2, 3, 3, 2, np.nan, 4]), np.array([0.3, 0.5, 0.5, 0.6, 0.5, 0.9, 0.2])
    assert pareto(cost, quality).tolist() == [True, True, False, True, True, False, False]
    assert pareto(np.zeros(0), np.zeros(0)).tolist() == []


def test_cost_against_quality_marks_the_frontier():
    figure = views.cost_quality(sweep_table(), paper=PAPER.assign(value=PAPER.threshold).drop(columns="threshold"))
    names = [t.name for t in figure.data]
    assert names == ["paper", "Pareto frontier", "settings"]
    frontier, points = figure.data[1], figure.data[2]
    assert list(frontier.x) == [1.0, 2.0]
    assert list(frontier.y) == [0.40, 0.42]
    hollow = [symbol.endswith("-open") for symbol in points.marker.symbol]
    assert dict(zip(points.customdata, hollow, strict=True)) == {"θ 1": True, "θ 1.2": False, "θ 1.4": False}
    several = views.cost_quality(sweep_table(name=["a", "b", "<b>"]), cost="tokens", quality="em")
    assert [t.name for t in several.data][1:] == ["b", "&lt;b&gt;", "a"]


def test_a_frontier_is_one_line_per_method():
    figure = views.frontier(sweep_table(method=["a", "b", "a"]))
    assert_dressed(figure)
    assert {line.name: (list(line.x), list(line.y)) for line in figure.data} == {
        "a": ([1.0, 2.0], [0.30, 0.32]),
        "b": ([3.0], [0.28]),
    }
    assert figure.data[0].line.dash != figure.data[1].line.dash
    assert "200 questions" in figure.layout.title.text
    assert [line.error_y.array is not None for line in figure.data] == [True, True]
    other = views.frontier(sweep_table(method=["a", "b", "a"]), cost="tokens", quality="f1")
    assert (other.layout.xaxis.title.text, other.layout.yaxis.title.text) == ("tokens per question", "F1")
    assert "No method has a point yet" in views.frontier(sweep_table(method="a")[:0]).layout.annotations[0].text
    with pytest.raises(SettingError, match="lacks the column 'method'"):
        views.frontier(sweep_table())


def test_labels_stand_apart_or_are_left_to_the_hover():
    rng = np.random.default_rng(0)
    for count in (2, 8, 40):
        x, y = rng.random(count), rng.random(count)
        texts = [f"θ {v:.2f}" for v in x]
        found = figures.sides(x, y, texts)
        places = np.column_stack([x / np.ptp(x) * 540, y / np.ptp(y) * 240])
        boxes = []
        for (px, py), text, side in zip(places, texts, found, strict=True):
            if side:
                left = px + 7 if "right" in side else px - 7 - 6.5 * len(text)
                low = py + 7 if "top" in side else py - 20
                boxes.append((left, low, left + 6.5 * len(text), low + 13))
        for a, b in itertools.combinations(boxes, 2):
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])
        assert sum(map(bool, found)) >= min(count, 8)
    twice = sweep_table(value=[1.0, 1.0, 1.0], retrievals=[1.0, 1.0, 1.0], f1=[0.4, 0.4, 0.4])
    shown = [text for series in views.cost_quality(twice).data if series.text is not None for text in series.text]
    assert [text for text in shown if text] == ["θ 1"] * sum(map(bool, shown))


# -- needs ------------------------------------------------------------------------------------------------------------


def make_items(n: int = 60, seed: int = 0) -> list[Item]:
    rng = np.random.default_rng(seed)
    items = []
    for i in range(n):
        missing = i % 3 == 0
        scores = {"entropy": float(rng.gamma(2 + 3 * missing)), "noise": float(rng.random()), "every-n": float(i % 2)}
        items.append(Item(f"q{i // 2}", "never" if missing else "often", missing, scores))
    return items


def test_curves_are_those_of_the_ranking_module():
    items = make_items()
    labels = np.array([i.missing for i in items])
    scores = np.array([i.scores["entropy"] for i in items])
    figure = views.needs_curves(items, thresholds={"entropy": 3.0})
    assert_dressed(figure)
    roc, recall, *points = [t for t in figure.data if t.legendgroup == "entropy"]
    false_rate, true_rate, _ = ranking.roc_curve(scores, labels)
    assert roc.x == pytest.approx(false_rate)
    assert roc.y == pytest.approx(true_rate)
    assert f"(area {ranking.roc_area(scores, labels):.2f})" in roc.name
    for theta, r, p in list(zip(recall.customdata, recall.x, recall.y, strict=True))[::7]:
        precision, found = ranking.precision_recall(scores, labels, np.nextafter(theta, -np.inf))
        assert (r, p) == pytest.approx((found, precision))
    precision, found = ranking.precision_recall(scores, labels, 3.0)
    assert points[1].x[0] == pytest.approx(found)
    assert points[1].y[0] == pytest.approx(precision)


def test_triggers_are_listed_best_first_and_clocks_are_points():
    figure = views.needs_curves(make_items())
    named = [t.name for t in figure.data if t.showlegend is not False and t.name != "chance"]
    areas = [float(name.split("area ")[1].rstrip(")")) for name in named]
    assert areas == sorted(areas, reverse=True)
    clock = [t for t in figure.data if t.legendgroup == "every-n"]
    assert all(t.mode == "markers" and len(t.x) == 1 for t in clock)
    always = [dataclasses.replace(i, scores={"every-sentence": 1.0}) for i in make_items()]
    roc, recall = [t for t in views.needs_curves(always).data if t.legendgroup == "every-sentence"]
    assert (roc.x[0], roc.y[0], recall.x[0]) == (1, 1, 1)
    assert recall.y[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("draw", [views.needs_curves, views.score_distributions])
def test_triggers_that_are_not_scored_are_named_with_the_reason(draw, tmp_path):
    figure = draw(make_items())
    assert "probe (reads hidden states)" in figure.layout.title.text
    page = views.save_html(tmp_path / "page.html", figure).read_text()
    assert re.search(r'aria-label="[^"]*Not scored on these facts: [^"]*probe \(reads hidden states\)', page)
    scored = [dataclasses.replace(i, scores={**i.scores, "probe": 0.0}) for i in make_items()]
    assert "probe (" not in draw(scored).layout.title.text
    assert "Not scored" not in draw(make_items(), triggers=["entropy"]).layout.title.text, "the reader chose"


def test_histograms_hold_every_fact_and_show_theta():
    items = make_items()
    figure = views.score_distributions(items, thresholds={"entropy": 3.0})
    bars = [t for t in figure.data if t.type == "bar"]
    assert len(bars) == 4  # two triggers, as the clock gives no scores
    assert all(sum(t.y) == pytest.approx(1) for t in bars)
    assert [s.x0 for s in figure.layout.shapes] == [3.0]
    assert "entropy, θ 3" in [a.text for a in figure.layout.annotations]
    assert bars[0].marker.pattern.shape != bars[1].marker.pattern.shape
    assert len(views.score_distributions(items, triggers=["every-n"]).data) == 2


def test_ground_truth_of_one_kind_gives_a_message():
    known = [i for i in make_items() if not i.missing]
    for items, says in (([], "no labelled facts"), (known, "All 40 facts are known")):
        for draw in (views.needs_curves, views.score_distributions):
            assert says in draw(items).layout.annotations[0].text.replace("<br>", " ")
    with pytest.raises(SettingError, match="no trigger 'none'"):
        views.needs_curves(make_items(), triggers=["none"])


# -- attention --------------------------------------------------------------------------------------------------------


def test_attention_is_summed_over_keys_and_averaged_over_queries():
    trace = factories.make_trace()
    step = trace.steps[0]
    made, prompt = step.draft, step.prompt
    found = written_map(made, prompt, step.decision.token, [0, 1], 80)
    attention, p = made.attention.astype(np.float32), len(made.prompt_ids)
    row = next(i for i, (_, word) in enumerate(found.rows) if word.startswith("◆"))
    assert found.rows[row][1] == "◆ Andrzej"
    assert {part for part, _ in found.columns} == {"question", "draft"}
    column = found.columns.index(("draft", "Polish-Russian"))
    keys = [p + i for i, token in enumerate(made.tokens) if token in ("▁Polish", "-", "Russian")]
    expected = attention[:, step.decision.token + 1, keys].sum(axis=1)
    assert found.paid[:, row, column] == pytest.approx(expected)
    last = found.rows.index(("draft", "Wajda."))
    rows = [i + 1 for i, token in enumerate(made.tokens) if token in ("▁Wajda", ".")]
    keys = [i for i, (a, b) in enumerate(made.prompt_offsets) if prompt.text[a:b].strip() == "mother"]
    pays = attention[:, rows, :][:, :, keys].sum(axis=2).mean(axis=1)
    assert found.paid[:, last, found.columns.index(("question", "mother"))] == pytest.approx(pays)
    ahead = found.columns.index(("draft", "Wajda."))
    assert np.isnan(found.paid[:, row, ahead]).all()
    assert found.rest + np.nansum(found.paid, axis=2) == pytest.approx(np.ones(found.rest.shape), abs=1e-5)


def test_the_map_has_a_layer_a_head_and_their_mean_and_a_slider():
    figure = views.attention_map(factories.make_trace())
    assert_dressed(figure)
    assert len(figure.data) == 1 + factories.HEADS
    assert [bool(t.visible) for t in figure.data] == [True, False, False]
    assert [s.label for s in figure.layout.sliders[0].steps] == ["mean", "head 0", "head 1"]
    mean = np.mean([t.z for t in figure.data[1:]], axis=0)
    assert np.nanmax(np.abs(mean - figure.data[0].z)) < 2e-4
    names = list(figure.data[0].x[1])
    assert len(names) == len(set(names))
    assert factories.make_trace().attention_map(step=1) == figure


class Reading:
    """A model that attends evenly, by words."""

    tokenizer = WordTokenizer()
    tap = SimpleNamespace(heads=None)

    def attend(self, ids):
        n = len(ids)
        return np.repeat((np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None])[None], 2, axis=0)

    def provenance(self):
        return {"weights_sha256": "b", "layer": 7}


def test_a_model_gives_question_and_answer_on_both_axes():
    found = read_again("Who made it?", "Ann did.", Reading(), 80)
    assert found.rows == found.columns
    assert found.rows == [("question", w) for w in ("Who", "made", "it?")] + [("answer", w) for w in ("Ann", "did.")]
    assert np.isnan(found.paid[:, 0, 1]).all()
    assert found.paid[0, 1, 0] == pytest.approx(1 / 3)  # behind the opening token and "Who"
    trace = factories.make_trace(attention=False)
    figure = views.attention_map(trace, lm=Reading())
    assert len(figure.data) == 3
    assert set(figure.data[0].y[0]) == {"question", "answer"}
    assert "by another model" not in figure.layout.title.text
    trace.provenance |= {"weights_sha256": "a", "layer": 3}
    said = views.attention_map(trace, lm=Reading()).layout.title.text.replace("</sup><br><sup>", " ")
    assert "by another model than the one that wrote them, layer 7" in said


def test_long_texts_are_cut_visibly():
    found = read_again("Who made it?", "word " * 300, Reading(), 40)
    assert len(found.rows) == 40
    assert found.left_out == "left out: 263 more words"
    figure = views.attention_map(factories.make_trace(), max_words=4)
    assert "left out" in figure.layout.title.text
    assert len(figure.data[0].y[1]) == 4


def test_what_has_no_attention_says_so_in_place(tmp_path):
    (tmp_path / "cut.trace").write_bytes(b"x")
    empty = Trace(samples.almanac_trace().question, {})
    cases = [
        (factories.make_trace(attention=False), "kept no attention"),
        (empty, "Nothing is written yet"),
        (Trace(empty.question, {}, [Step(0)]), "Nothing is written yet"),
        (tmp_path / "cut.trace", "not a trace"),
    ]
    for trace, says in cases:
        figure = views.attention_map(trace)
        assert says in figure.layout.annotations[0].text.replace("<br>", " ")
        assert_dressed(figure)
    assert "Nothing is written yet" in views.attention_map(empty, lm=Reading()).layout.annotations[0].text
    with pytest.raises(SettingError, match="step=9 does not exist"):
        views.attention_map(factories.make_trace(), step=9)
    with pytest.raises(SettingError, match="max_words=1"):
        views.attention_map(factories.make_trace(), max_words=1)


def test_words_of_html_are_texts_in_a_map():
    found = WordMap(np.ones((1, 1, 1), np.float32), [("draft", "<i>")], [("draft", "<i>")], np.zeros((1, 1)), [0])
    figure = views.attention._figure(found, ("<script>", ""))
    assert figure.data[0].x[1][0] == "&lt;i&gt;"
    assert "<script" not in figure.layout.title.text


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_page_holds_everything_and_plotly_once(tmp_path):
    trace = samples.almanac_trace()
    figure = views.threshold_sweep(sweep_table())
    path = views.save_html(tmp_path / "page.html", trace, trace.timeline(), figure, figure, title="All <of> it")
    page = path.read_text(encoding="utf-8")
    assert page.count("plotly.js v") == 1
    assert page.count("Plotly.newPlot(") >= 2
    assert 'id="dl-figure-1"' in page
    assert 'id="dl-figure-2"' in page
    assert "<title>All &lt;of&gt; it</title>" in page
    assert "<script src" not in page
    bare = views.save_html(tmp_path / "bare.html", trace.heatmap()).read_text(encoding="utf-8")
    assert "plotly.js v" not in bare
    assert trace.heatmap().save(tmp_path / "own.html").read_text(encoding="utf-8") == bare


def test_figures_are_described_and_a_page_of_stills_needs_no_script(tmp_path):
    pytest.importorskip("matplotlib")
    figure = views.threshold_sweep(sweep_table())
    page = views.save_html(tmp_path / "page.html", figure).read_text(encoding="utf-8")
    [said] = re.findall(r'role="figure" aria-label="([^"]*)"', page)
    assert "Quality and retrievals against θ (200 questions)" in said
    assert "Series: EM, F1, retrievals per question" in said
    assert "dl-title" in page, "the title is HTML on a page, where it breaks at any width"
    assert f'"meta":{{"title":"{figure.layout.title.text}"' in page.replace(": ", ":"), "an exported picture has it too"
    assert '<div class="dl-fig" ' in page, "panels below one another fit a telephone; side by side they scroll"
    still_page = views.save_html(tmp_path / "still.html", figure, samples.almanac_trace(), interactive=False)
    text = still_page.read_text(encoding="utf-8")
    assert "plotly.js v" not in text
    assert f'alt="{said}"' in text
    assert len(text) < 400_000


def test_what_cannot_be_written_says_why(tmp_path):
    drawn = samples.almanac_trace().timeline()
    with pytest.raises(SettingError, match="nothing to write"):
        views.save_html(tmp_path / "a.html")
    with pytest.raises(SettingError, match="a int is not a view"):
        views.save_html(tmp_path / "a.html", 7)
    with pytest.raises(ViewError, match="create the folder first"):
        views.save_html(tmp_path / "none" / "a.html", drawn)
    assert list(tmp_path.iterdir()) == []


def test_pictures_need_an_ending_and_a_figure(tmp_path):
    figure = views.threshold_sweep(sweep_table())
    with pytest.raises(SettingError, match=r"ends in one of \.png"):
        views.save_image(figure, tmp_path / "a.gif")
    with pytest.raises(SettingError, match="View cannot be written as a picture"):
        views.save_image(samples.almanac_trace().timeline(), tmp_path / "a.png")


def test_kaleido_draws_where_it_can(tmp_path, monkeypatch):
    monkeypatch.setattr(go.Figure, "to_image", lambda self, **options: repr(options).encode())
    data = views.save_image(views.threshold_sweep(sweep_table()), tmp_path / "a.svg", width=500).read_text()
    assert "'format': 'svg'" in data
    assert "'width': 500" in data


DRAWN = {
    "sweep": lambda: views.threshold_sweep(sweep_table(), paper=PAPER),
    "cost": lambda: views.cost_quality(sweep_table(name=["a", "b", "<b>"])),
    "needs": lambda: views.needs_curves(make_items(), thresholds={"entropy": 3.0}),
    "scores": lambda: views.score_distributions(make_items(), thresholds={"entropy": 3.0}),
    "attention": lambda: views.attention_map(factories.make_trace()),
    "message": lambda: views.needs_curves([]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_without_chrome_matplotlib_draws_the_same_data(name, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")

    def refuse(self, **_):
        raise RuntimeError("Kaleido requires Google Chrome to be installed.")

    monkeypatch.setattr(go.Figure, "to_image", refuse)
    figure = DRAWN[name]()
    assert views.save_image(figure, tmp_path / "a.png", width=500, scale=1).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(matplotlib_settings(), "svg.fonttype", "none")
    svg = views.save_image(figure, tmp_path / "a.svg").read_text(encoding="utf-8")
    for said in ("".join(figure.layout.title.text or "").split("<br>")[0], *(s.name for s in figure.data if s.name)):
        if name != "attention":
            assert still.plain(said).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in svg
    assert views.save_image(figure, tmp_path / "b.svg").read_text(encoding="utf-8") == svg


def matplotlib_settings():
    import matplotlib

    return matplotlib.rcParams


def test_what_neither_can_draw_says_what_to_install(tmp_path, monkeypatch):
    def refuse(self, **_):
        raise ValueError("no kaleido")

    monkeypatch.setattr(go.Figure, "to_image", refuse)
    with pytest.raises(SettingError, match="install Chrome"):
        views.save_image(go.Figure(go.Pie(values=[1])), tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[export\]'"):
        views.save_image(views.threshold_sweep(sweep_table()), tmp_path / "a.png")


def test_without_plotly_figures_say_what_to_install_and_static_views_still_work(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    trace = factories.make_trace()
    for draw in (
        lambda: views.threshold_sweep(sweep_table()),
        lambda: views.cost_quality(sweep_table()),
        lambda: views.needs_curves(make_items()),
        lambda: views.score_distributions(make_items()),
        lambda: views.attention_map(trace),
        lambda: views.save_image(None, tmp_path / "a.png"),
    ):
        with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[notebooks\]'"):
            draw()
    views.save_html(tmp_path / "a.html", trace, trace.heatmap(), trace.selections())


def test_a_page_takes_tables_too(tmp_path):
    table = Table(0, "mine: means", ("method",), (("", "EM"),), [Row(("dragin",), (Cell(setting="<3>"),))], ["n = 4"])
    frame = pd.DataFrame({"qid": ["q1"], "right": [0.25]})
    text = views.save_html(tmp_path / "t.html", table, frame).read_text(encoding="utf-8")
    assert "<h3>mine: means</h3>" in text
    assert "&lt;3&gt;" in text
    assert "0.250" in text
    assert "<p>n = 4</p>" in text
    assert "plotly.js v" not in text


def test_answers_without_a_score_leave_a_figure_without_points() -> None:
    rows = pd.DataFrame({"value": [1.0], "em": [np.nan], "f1": [np.nan], "retrievals": [1.0]})
    figure = views.cost_quality(rows)
    assert [np.isfinite(np.array(series.y, float)).any() for series in figure.data] == [False] * len(figure.data)
