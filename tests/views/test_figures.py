"""The figures: they show the data they are given, their numbers stand under them, and they can be read on any page."""

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
from colours import contrast
from scripted import WordTokenizer

from dragin_lab import views
from dragin_lab.errors import MissingPackageError, SettingError, ViewError
from dragin_lab.study import ranking
from dragin_lab.study.needs import Item
from dragin_lab.study.table import Cell, Row, Table
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import figures
from dragin_lab.views.attention import WordMap, read_again, written_map
from dragin_lab.views.figures import NARROW, WIDE
from dragin_lab.views.rendering import load_stylesheet
from dragin_lab.views.thresholds import pareto

pytest.importorskip("matplotlib")


def sweep_table(**more: object) -> pd.DataFrame:
    table = pd.DataFrame({"setting": "threshold", "value": [1.4, 1.0, 1.2], "n": 200})
    for name, values in (("em", [0.30, 0.28, 0.32]), ("f1", [0.40, 0.38, 0.42]), ("retrievals", [1.0, 3.0, 2.0])):
        table[name] = values
        table[f"{name}_low"], table[f"{name}_high"] = table[name] - 0.05, table[name] + 0.06
    table["tokens"] = [80.0, 100.0, 90.0]
    return table.assign(**more)


PAPER = pd.DataFrame({"threshold": [1.0, 1.2], "em": [0.327, 0.328], "f1": [0.4339, 0.4344], "num": [3.84, 3.697]})


def make_items(n: int = 60) -> list[Item]:
    rng = np.random.default_rng(3)
    items = []
    for i in range(n):
        missing = i % 3 == 0
        scores = {"entropy": float(rng.gamma(2) + 2 * missing), "noise": float(rng.random()), "every-n": float(i % 2)}
        items.append(Item(f"q{i}", "never" if missing else "often", missing, scores))
    return items


DRAWN = {
    "sweep": lambda: views.threshold_sweep(sweep_table(), paper=PAPER),
    "cost": lambda: views.cost_quality(sweep_table(name=["a", "b", "<b> $x$"])),
    "frontier": lambda: views.frontier(sweep_table(method=["a", "b", "a"])),
    "needs": lambda: views.needs_curves(make_items(), thresholds={"entropy": 3.0}),
    "scores": lambda: views.score_distributions(make_items(), thresholds={"entropy": 3.0}),
    "attention": lambda: views.attention_map(factories.make_trace()),
}


def panels_of(figure, width: int = WIDE):
    """The panels of a figure by their titles."""
    return {panel.get_title(loc="left"): panel for panel in figure.draw(width).axes}


# -- looks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_takes_the_colours_and_font_of_its_page_and_holds_its_numbers(name):
    figure = DRAWN[name]()
    html = figure.html
    literal = re.sub(r"var\(--\w+, #\w{6}\)", "", "".join(re.findall("<svg.*?</svg>", html, re.DOTALL)))
    assert set(re.findall(r"#[0-9a-f]{6}\b", literal)) <= {"#ffffff", "#000000"}, "every colour is one of the page's"
    assert "DejaVu" not in re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    assert html.count("<svg ") == 2, "one picture for wide cards and one for narrow ones"
    ids = re.findall(r'<(?:path|clipPath|pattern|image)[^>]* id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    [alt] = re.findall(r'role="img" aria-label="([^"]+)"', html)
    assert len(alt) > 20
    assert html.count("<tr>") > 2
    assert str(figure).startswith(figure.title)


def test_colours_are_seen_on_light_and_on_dark():
    css = load_stylesheet("figure")
    pairs = [re.search(rf"{variable}:.*?light-dark\((#\w+),\s*(#\w+)\)", css) for variable in ("--blue", "--amber")]
    for pair in pairs:
        light, dark = pair.groups()
        assert light in figures.VARIABLES
        assert contrast(light, "#ffffff") >= 4.5
        assert contrast(dark, "#111111") >= 4.5
    assert min(contrast(views.attention.FULL, back) for back in ("#ffffff", "#15161a")) >= 3


def test_labels_are_texts_not_markup():
    html = DRAWN["cost"]().html
    assert "&lt;b&gt; $x$" in html
    assert "<b> $x$" not in html
    words = WordMap(np.ones((1, 1, 1), np.float32), [("draft", "<i>")], [("draft", "<i>")], [0])
    html = views.attention._map_figure(words, None, "<script>", "").html
    assert "<i>" not in html
    assert "<script>" not in html


# -- thresholds -------------------------------------------------------------------------------------------------------


def test_a_sweep_has_a_panel_per_measure_with_its_intervals():
    figure = views.threshold_sweep(sweep_table())
    panels = panels_of(figure)
    assert list(panels) == ["EM", "F1", "retrievals per question"]
    [line] = panels["EM"].get_lines()
    assert line.get_xydata().tolist() == [[1.0, 0.28], [1.2, 0.32], [1.4, 0.30]]
    [band] = panels["EM"].collections
    assert band.get_datalim(panels["EM"].transData).y0 == pytest.approx(0.23)
    assert panels["EM"].get_xlabel() == "θ"
    assert "200 questions" in figure.title
    assert "0.230 to 0.340" in figure.html


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_papers_values_stand_beside_ours_on_the_same_scale(width):
    figure = views.threshold_sweep(sweep_table(), paper=PAPER)
    panels = panels_of(figure, width)
    assert set(panels) == {"EM", "EM, paper", "F1", "F1, paper", "retrievals per question", "retrievals, paper"}
    [line] = panels["retrievals, paper"].get_lines()
    assert line.get_xydata().tolist() == [[1.0, 3.84], [1.2, 3.697]]
    assert panels["EM"].get_ylim() == panels["EM, paper"].get_ylim()
    assert {label.get_text() for label in panels["EM"].texts} == {"0.28", "0.32", "0.30"}
    assert "<td>3.84" in figure.html
    partly = panels_of(views.threshold_sweep(sweep_table(), paper=PAPER[["threshold", "em"]]))
    assert not len(partly["F1, paper"].get_lines()[0].get_xydata())


def test_a_sweep_object_and_tables_without_intervals_will_do():
    bare = sweep_table()[["value", "em", "f1", "retrievals"]]
    assert not panels_of(views.threshold_sweep(SimpleNamespace(table=bare)))["EM"].collections
    assert panels_of(views.threshold_sweep(sweep_table(setting="top_n")))["EM"].get_xlabel() == "top n"
    unknown = panels_of(views.threshold_sweep(sweep_table(em_low=np.nan, em_high=np.nan), paper=PAPER))
    assert unknown["EM"].get_ylim() == pytest.approx((0, 1.15 * 0.328))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["qfs", "full-context", "last-n"], ["qfs", "full-context", "last-n"]),
        ([None, 25, 5], ["None", "25", "5"]),
        ([0.5, None, 0.1], ["0.5", "None", "0.1"]),
        ([True, False, True], ["True", "False", "True"]),
        (["a", None, 1.5], ["a", "None", "1.5"]),
    ],
)
def test_values_that_are_no_numbers_stand_beside_one_another_as_given(values, names):
    table = sweep_table().assign(setting="what", value=pd.Series(values, dtype=object))
    figure = views.threshold_sweep(table)
    panel = panels_of(figure)["EM"]
    assert [label.get_text() for label in panel.get_xticklabels()] == names
    assert [line.get_linestyle() for line in panel.get_lines()] == ["None"], "no line leads from a text to another"
    assert panel.get_lines()[0].get_ydata().tolist() == table["em"].tolist()
    assert f"over what in {', '.join(names)}" in str(figure)
    assert [f"what {name}" in str(views.cost_quality(table)) for name in names] == [True] * 3


def test_one_value_is_drawn():
    panel = panels_of(views.threshold_sweep(sweep_table()[:1]))["EM"]
    assert (panel.get_xticks().tolist(), len(panel.texts)) == ([1.4], 1)


def test_tables_that_cannot_be_drawn_say_what_is_wrong():
    with pytest.raises(SettingError, match="lacks the column 'em'"):
        views.threshold_sweep(sweep_table().drop(columns="em"))
    with pytest.raises(SettingError, match="not list"):
        views.threshold_sweep([1])
    with pytest.raises(SettingError, match="lacks the column 'value'"):
        views.threshold_sweep(sweep_table(), paper=PAPER[["em"]])
    with pytest.raises(SettingError, match="paper= has values of θ, and this sweep goes over top n; leave paper= out"):
        views.threshold_sweep(sweep_table(setting="top_n"), paper=PAPER)
    with pytest.raises(SettingError, match="goes over threshold and top_n; draw one setting at a time"):
        views.threshold_sweep(sweep_table(setting=["threshold", "top_n", "top_n"]))
    with pytest.raises(SettingError, match="lacks the column 'method'"):
        views.frontier(sweep_table())
    for view in (views.threshold_sweep(sweep_table()[:0]), views.cost_quality(pd.DataFrame())):
        assert "no rows" in str(view)
    assert "No method has a point yet" in str(views.frontier(sweep_table(method="a")[:0]))


def test_the_frontier_holds_what_nothing_beats():
    cost, quality = np.array([1, 2, 3, 3, 2, np.nan, 4]), np.array([0.3, 0.5, 0.5, 0.6, 0.5, 0.9, 0.2])
    assert pareto(cost, quality).tolist() == [True, True, False, True, True, False, False]
    assert pareto(np.zeros(0), np.zeros(0)).tolist() == []


def test_cost_against_quality_fills_the_points_of_the_frontier():
    figure = views.cost_quality(sweep_table())
    steps, *_, filled, hollow = figure.draw(WIDE).axes[0].get_lines()
    assert steps.get_xydata().tolist() == sorted(filled.get_xydata().tolist()) == [[1.0, 0.40], [2.0, 0.42]]
    assert hollow.get_xydata().tolist() == [[3.0, 0.38]]
    assert hollow.get_markerfacecolor() == "none"
    assert "On the frontier: θ 1.2, θ 1.4." in figure.html
    named = views.cost_quality(sweep_table(name=["a", "b", "b"]), cost="tokens", quality="em")
    shown = {text.get_text() for text in named.draw(WIDE).axes[0].texts}
    assert shown == {"a, θ 1.4", "b, θ 1", "b, θ 1.2"}
    unscored = pd.DataFrame({"value": [1.0], "em": [np.nan], "f1": [np.nan], "retrievals": [1.0]})
    assert "On the frontier: none." in views.cost_quality(unscored).html


def test_labels_stand_apart_or_are_left_to_the_table():
    rng = np.random.default_rng(0)
    for n in (2, 8, 40):
        with figures.use_style():
            _, [panel] = figures.draw_panels([""], 600, height=300)
            x, y = rng.random(n), rng.random(n)
            panel.plot(x, y, "o")
            figures.label_points(panel, x, y, [f"θ {value:.2f}" for value in x])
            boxes = [text.get_window_extent() for text in panel.texts]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        assert len(boxes) >= min(n, 8)
    same = sweep_table(value=[1.0] * 3, retrievals=[1.0] * 3, f1=[0.4] * 3)
    assert 1 <= len(views.cost_quality(same).draw(NARROW).axes[0].texts) <= 3


def test_a_frontier_has_a_panel_per_method_over_the_others():
    figure = views.frontier(sweep_table(method=["a", "b", "a"]))
    panels = panels_of(figure)
    assert list(panels) == ["a", "b"], "the best on average comes first"
    *behind, own = panels["a"].get_lines()
    assert own.get_xydata().tolist() == [[1.0, 0.30], [2.0, 0.32]]
    assert len(behind) == 2
    assert panels["a"].get_ylim() == panels["b"].get_ylim()
    other = views.frontier(sweep_table(method=["a", "b", "a"]), cost="tokens", quality="f1")
    assert other.title == "F1 against tokens per question (200 questions)"


# -- needs ------------------------------------------------------------------------------------------------------------


def test_the_curves_are_those_of_the_scores_with_a_mark_at_theta():
    items = make_items()
    labels, scores = np.array([i.missing for i in items]), np.array([i.scores["entropy"] for i in items])
    figure = views.needs_curves(items, thresholds={"entropy": 3.0})
    roc, recall = [panel for panel in figure.draw(WIDE).axes if "entropy" in panel.get_title(loc="left")]
    assert roc.get_title(loc="left") == f"entropy {ranking.roc_area(scores, labels):.2f}"
    *_, curve, mark = roc.get_lines()
    false_rate, true_rate, _ = ranking.roc_curve(scores, labels)
    assert curve.get_xydata() == pytest.approx(np.column_stack([false_rate, true_rate]))
    precision, share = ranking.precision_recall(scores, labels, 3.0)
    assert mark.get_xydata()[0] == pytest.approx([(scores[~labels] > 3.0).mean(), share])
    assert recall.get_lines()[-1].get_xydata()[0] == pytest.approx([share, precision])


def test_the_table_under_the_curves_holds_thresholds():
    items = make_items()
    labels, scores = np.array([i.missing for i in items]), np.array([i.scores["entropy"] for i in items])
    rows = re.findall("<tr><td>entropy</td>(.*?)</tr>", views.needs_curves(items).html)
    assert 10 < len(rows) <= views.needs.MAX_THRESHOLDS
    for row in rows[1::5]:
        theta, _, recall, precision = map(float, re.findall("<td>([^<]*)</td>", row))
        assert (precision, recall) == pytest.approx(ranking.precision_recall(scores, labels, theta - 0.0006), abs=0.02)


def test_triggers_are_listed_best_first_and_clocks_are_points():
    titles = [
        t for t in (p.get_title(loc="left") for p in views.needs_curves(make_items()).draw(WIDE).axes) if "." in t
    ]
    areas = [float(title.split()[-1]) for title in titles]
    assert len(areas) == 3
    assert areas == sorted(areas, reverse=True)
    always = [dataclasses.replace(i, scores={"every-sentence": 1.0}) for i in make_items()]
    roc, recall = views.needs_curves(always).draw(WIDE).axes
    assert roc.get_lines()[-1].get_xydata().tolist() == [[1, 1]]
    assert recall.get_lines()[-1].get_xydata()[0] == pytest.approx([1, 1 / 3])


@pytest.mark.parametrize("draw", [views.needs_curves, views.score_distributions])
def test_triggers_that_are_not_scored_are_named_with_the_reason(draw):
    assert re.search(r"Not scored on these facts: .*entity \(reads entities\)", draw(make_items()).html)
    scored = [dataclasses.replace(i, scores={**i.scores, "entity": 0.0}) for i in make_items()]
    assert "entity (" not in draw(scored).html
    assert "Not scored" not in draw(make_items(), triggers=["entropy"]).html, "the reader chose"


def test_histograms_hold_every_fact_and_show_theta():
    panels = panels_of(views.score_distributions(make_items(), thresholds={"entropy": 3.0}))
    assert list(panels) == ["entropy, θ 3", "noise"], "the clock gives no scores"
    for panel in panels.values():
        known, missing = panel.patches
        assert sum(known.get_data().values) == pytest.approx(1)
        assert sum(missing.get_data().values) == pytest.approx(1)
        assert known.get_hatch() != missing.get_hatch()
    assert list(panels["entropy, θ 3"].get_lines()[0].get_xdata()) == [3.0, 3.0]
    assert not panels["noise"].get_lines()
    assert list(panels_of(views.score_distributions(make_items(), triggers=["every-n"]))) == ["every n"]


def test_ground_truth_of_one_kind_gives_a_message():
    known = [i for i in make_items() if not i.missing]
    for items, says in (([], "no labelled facts"), (known, "All 40 facts are known")):
        for draw in (views.needs_curves, views.score_distributions):
            assert says in str(draw(items))
    with pytest.raises(SettingError, match="no trigger 'none'"):
        views.needs_curves(make_items(), triggers=["none"])


# -- attention --------------------------------------------------------------------------------------------------------


def test_attention_is_summed_over_keys_and_averaged_over_queries():
    trace = factories.make_trace()
    step = trace.steps[0]
    made, prompt = step.draft, step.prompt
    found = written_map(trace, step, made, prompt, 80)
    attention, p = made.rows.astype(np.float32), len(made.prompt_ids)
    row = next(i for i, (_, word) in enumerate(found.rows) if word.startswith("◆"))
    assert found.rows[row][1] == "◆ Andrzej"
    assert {part for part, _ in found.columns} == {"question", "draft"}
    column = found.columns.index(("draft", "Polish-Russian"))
    keys = [p + i for i, token in enumerate(made.pieces) if token in ("▁Polish", "-", "Russian")]
    expected = attention[:, step.decision.token + 1, keys].sum(axis=1)
    assert found.paid[:, row, column] == pytest.approx(expected)
    last = found.rows.index(("draft", "Wajda."))
    rows = [i + 1 for i, token in enumerate(made.pieces) if token in ("▁Wajda", ".")]
    keys = [i for i, (a, b) in enumerate(made.prompt_offsets) if prompt.text[a:b].strip() == "mother"]
    pays = attention[:, rows, :][:, :, keys].sum(axis=2).mean(axis=1)
    assert found.paid[:, last, found.columns.index(("question", "mother"))] == pytest.approx(pays)
    ahead = found.columns.index(("draft", "Wajda."))
    assert np.isnan(found.paid[:, row, ahead]).all()


def test_the_map_is_the_mean_or_a_head_with_a_small_map_for_each():
    trace = factories.make_trace()
    figure = views.attention_map(trace)
    panels = panels_of(figure)
    small = [panels[f"head {number}"].get_images()[0].get_array() for number in range(factories.HEADS)]
    mean = figure.draw(WIDE).axes[0].get_images()[0].get_array()
    assert np.ma.allclose(mean, np.ma.mean(small, axis=0), atol=1e-6)
    one = trace.attention_map(step=1, head=1)
    assert np.ma.allclose(one.draw(WIDE).axes[0].get_images()[0].get_array(), small[1])
    assert "Attention paid, head 1" in one.html
    assert f"<td>{mean[0, 0]:.2f}</td>" in figure.html
    with pytest.raises(SettingError, match="head=7 was not captured; give one of 0, 1"):
        views.attention_map(trace, head=7)


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
    words = read_again("Who made it?", "Ann did.", Reading(), 80)
    assert words.rows == words.columns
    assert words.rows == [("question", w) for w in ("Who", "made", "it?")] + [("answer", w) for w in ("Ann", "did.")]
    assert np.isnan(words.paid[:, 0, 1]).all()
    assert words.paid[0, 1, 0] == pytest.approx(1 / 3)  # behind the opening token and "Who"
    long = read_again("Who made it?", "word " * 300, Reading(), 40)
    assert len(long.rows) == 40
    assert long.left_out == "263 more words"
    assert "left out" in views.attention_map(factories.make_trace(), max_words=4).about
    trace = factories.make_trace(attention=False)
    figure = views.attention_map(trace, lm=Reading())
    assert {"question", "answer"} <= {text.get_text() for text in figure.draw(WIDE).axes[0].texts}
    assert "by another model" not in figure.about
    trace.provenance |= {"weights_sha256": "a", "layer": 3}
    assert "by another model than the one that wrote them, layer 7" in views.attention_map(trace, lm=Reading()).about


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
        assert says in str(views.attention_map(trace))
    assert "Nothing is written yet" in str(views.attention_map(empty, lm=Reading()))
    for step in (0, 3, -1, True, 1.5, "1"):
        with pytest.raises(SettingError, match=f"step={step!r}: the trace has steps 1 to 2; give one of them"):
            views.attention_map(factories.make_trace(), step=step)
    with pytest.raises(SettingError, match="max_words=1"):
        views.attention_map(factories.make_trace(), max_words=1)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_page_holds_views_figures_and_tables(tmp_path):
    trace = samples.almanac_trace()
    table = Table(0, "mine: means", ("method",), (("", "EM"),), [Row(("dragin",), (Cell(setting="<3>"),))], ["n = 4"])
    frame = pd.DataFrame({"qid": ["q1"], "right": [0.25]})
    parts = (trace, trace.timeline(), views.threshold_sweep(sweep_table()), table, frame)
    page = views.save_html(tmp_path / "page.html", *parts, title="All <of> it").read_text(encoding="utf-8")
    assert "<title>All &lt;of&gt; it</title>" in page
    assert page.count('class="dl-out"') == 3
    assert "<script src" not in page
    for text in ("<h3>mine: means</h3>", "&lt;3&gt;", "0.250", "<p>n = 4</p>"):
        assert text in page
    bare = views.save_html(tmp_path / "bare.html", trace.heatmap()).read_text(encoding="utf-8")
    assert trace.heatmap().save(tmp_path / "own.html").read_text(encoding="utf-8") == bare


def test_what_cannot_be_written_says_why(tmp_path):
    timeline, figure = samples.almanac_trace().timeline(), views.threshold_sweep(sweep_table())
    with pytest.raises(SettingError, match="nothing to write"):
        views.save_html(tmp_path / "a.html")
    with pytest.raises(SettingError, match="a int is not a view"):
        views.save_html(tmp_path / "a.html", 7)
    with pytest.raises(ViewError, match="create the folder first"):
        views.save_html(tmp_path / "none" / "a.html", timeline)
    with pytest.raises(ViewError, match="create the folder first"):
        figure.save(tmp_path / "none" / "a.png")
    with pytest.raises(SettingError, match=r"ends in one of \.png"):
        figure.save(tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_the_figure_with_its_title_on_white(tmp_path):
    figure = DRAWN["needs"]()
    assert figure.save(tmp_path / "a.png", width=500, scale=1).read_bytes().startswith(b"\x89PNG")
    svg = figure.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert figure.title.split("?")[0][:40] in svg
    assert "fill: #ffffff" in svg
    assert "var(" not in svg, "programs other than browsers read it too"
    assert figure.save(tmp_path / "b.svg").read_text(encoding="utf-8") == svg
    assert figure.save(tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_matplotlib_figures_say_what_to_install_and_other_views_still_work(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in DRAWN.values():
        with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[notebooks\]'"):
            draw()
    trace = factories.make_trace()
    views.save_html(tmp_path / "a.html", trace, trace.heatmap(), trace.selections())
