"""The script behind docs/triggers.md: it runs end to end, goes on where it stopped, and says what it found."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from dragin_lab.core.formulators import DEFAULT_TOP_N
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.trace.trace import Question
from tools.pages import first_world, triggers, triggers_work
from tools.pages.triggers_page import FORMULAS, READING

ROOT = Path(__file__).parents[2]


def test_every_trigger_of_the_page_has_its_formula_and_its_place() -> None:
    given = triggers.options(["--limit", "3"])
    assert given.dev_limit == 10
    assert triggers.options([]).dev_limit == 80
    assert triggers_work.TOP_N == DEFAULT_TOP_N  # with which notebook 10 asks
    work = triggers_work.Work.__new__(triggers_work.Work)
    work.given = given
    methods = work.methods(TRIGGERS.make("entropy"), TRIGGERS.make("prefix-entropy"))
    assert set(methods) == set(FORMULAS)
    assert len(methods) >= 10
    assert len({str(method) for method in methods.values()}) == len(methods) - 1  # the stand-in for the fitted one


def test_the_other_worlds_questions_are_answered_by_its_passages() -> None:
    world = first_world.first_world()
    dev, test = (world.questions(first_world.SET, split) for split in ("dev", "test"))
    texts = [f"{one.title} {one.text}" for one in world.corpus]

    def films(asked: Sequence[Question]) -> set[str]:
        return {re.search(r"director of film (.+) born", one.text)[1] for one in asked if "born" in one.id}

    every = films(dev) | films(test)
    assert (len(films(dev)), len(films(test)), len(every)) == (40, 78, 118)
    shown = " ".join(one.question for one in world.prompts[first_world.SET])
    assert not any(name in shown for name in every)
    for one in (*dev, *test):
        names = [name for name in every if re.search(rf"\b{name}\b", one.text)]
        own = [next(text for text in texts if text.startswith(name)) for name in names]
        if "country" in one.id:
            lands = [re.search(r"(?:from|made in) (\w+)", text)[1] for text in own]
            assert one.golds == ("yes" if lands[0] == lands[1] else "no",)
            continue
        lives = []
        for text in own:
            director = re.search(r"irected by (\w+ \w+)", text)[1]
            lives += [text for text in texts if text.startswith(director)]
        assert len(lives) == len(names) == (1 if "born" in one.id else 2)
        if "born" in one.id:
            assert f"({one.golds[0]} - " in lives[0]
        else:
            ends = [int(re.search(r"- \d+ \w+ (\d{4})\)", life)[1]) for life in lives]
            assert one.golds[0] in names
            assert ends[names.index(one.golds[0])] == max(ends)


def test_the_files_of_notebook_10_are_of_one_run() -> None:
    tables = json.loads((ROOT / "notebooks" / "almanac_triggers.json").read_text(encoding="utf-8"))
    fitted = json.loads((ROOT / "notebooks" / "almanac_fitted.json").read_text(encoding="utf-8"))
    assert {row["method"] for row in tables["frontier"]} == set(FORMULAS)
    assert set(tables["headroom"]) == {"rind", "fitted"}
    assert fitted["fitted_on"]["missing"] > 0
    page = (ROOT / "docs" / "triggers.md").read_text(encoding="utf-8")
    assert f"| questions | {tables['questions']} test questions of Almanac |" in page
    assert tables["model"][:12] in page


@pytest.mark.slow
def test_it_runs_end_to_end_and_asks_nothing_twice(tmp_path: Path) -> None:
    page = tmp_path / "page" / "triggers.md"
    small = ["--limit", "1", "--dev-limit", "5", "--confirm", first_world.MODELS[-1]]
    command = [*small, "--output", str(tmp_path / "runs"), "--page", str(page), "--tables", str(tmp_path)]
    triggers.main(command)
    text = page.read_text(encoding="utf-8")
    assert "| questions | 4 test questions of Almanac |" in text
    assert all(f"| `{name}` |" in text for name in FORMULAS)
    assert text.count("not its own") == 1  # the byte-level model with Llama-2's marker
    assert "$" not in text
    assert (page.parent / "pictures" / "triggers.png").stat().st_size > 10_000
    page.write_text(text.replace("Nothing written yet.", "Entropy does well."), encoding="utf-8")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("predictions.jsonl")}
    triggers.main(command)
    assert READING[0] + "\nEntropy does well." in page.read_text(encoding="utf-8")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
