"""``dragin-lab run``: which runs are made, what is printed, and what is left of
one that is stopped.
"""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from answering import AnsweringModel, questions
from command import Command, interrupt_on_terminal

import dragin_lab as dl
from dragin_lab import lab as lab_module
from dragin_lab.cli import app as cli
from dragin_lab.cli import options
from dragin_lab.cli import run as cli_run
from dragin_lab.errors import ModelError, RunError
from dragin_lab.run.benchmark import Benchmark
from dragin_lab.run.benchmark import benchmark as open_benchmark
from dragin_lab.run.rundir import find_runs

RUN = ("run", "--method", "dragin,wo-rag", "--set", "variant=paper", "--set", "what=question")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> AnsweringModel:
    """A scripted model and three scripted questions in place of the embedded ones."""
    from scripted import ScriptedRetriever

    lm, retriever = AnsweringModel(), ScriptedRetriever()

    def opened(source: str, *, limit: int | None = None, **_: Any) -> Benchmark:
        return Benchmark(source, tuple(questions(3)[:limit]), limit=limit)

    monkeypatch.setattr("dragin_lab.engines.load.open_model", lambda *given, **loading: lm)
    monkeypatch.setattr(lab_module, "open_retriever", lambda *given: retriever)
    monkeypatch.setattr(dl, "benchmark", opened)
    return lm


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, without their intervals."""
    cut = [
        re.split("  +", line)
        for line in text.splitlines()
        if re.search(r"(\]|–) +\d+ of \d+$", line)
    ]
    return [[c.rstrip("*") for c in line if not c.startswith(("[", "–"))] for line in cut]


# -- what is run -----------------------------------------------------------------------------------


def test_methods_over_data_sets_with_a_table_each(
    command: Command, tmp_path: Path, scripted: AnsweringModel
) -> None:
    ran = command(*RUN, "--dataset", "one,two", "--dataset", "three", "--output", tmp_path)
    assert ran.code == cli.DONE, ran.err
    assert ran.out.count("three: means per question") == 1
    assert [row[:5] for row in rows(ran.out)] == [
        ["dragin-what=question", "3", "1.000", "1.000", "1.00"],
        ["wo-rag", "3", "0.000", "0.500", "0.00"],
    ] * 3
    assert {record.folder.relative_to(tmp_path).as_posix() for record in find_runs(tmp_path)} == {
        f"{data}/{name}"
        for data in ("one", "two", "three")
        for name in ("dragin-what=question", "wo-rag")
    }
    assert "one dragin-what=question: 3 of 3, " in ran.err
    assert "EM=1.000" in ran.err
    assert "the embedded passages" not in ran.err  # nobody knows what these questions are about


def test_questions_without_gold_answers_are_run_from_a_file(
    command: Command, tmp_path: Path, scripted: AnsweringModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dl, "benchmark", open_benchmark)
    own = tmp_path / "asked.csv"
    own.write_text("question\nWho made thing 1?\nWho made thing 2?\n")
    assert command(*RUN, "--dataset", own, "--output", tmp_path / "runs").code == cli.DONE
    (answers,) = (
        r.predictions
        for r in find_runs(tmp_path / "runs")
        if r.config["method"]["name"] == "dragin"
    )
    assert [(line["answer"], line["gold"], line["em"]) for line in answers] == [
        ("Li 1", [], None),
        ("Li 2", [], None),
    ]
    assert "EM" not in command("table", tmp_path / "runs").out


def test_every_folder_is_checked_before_any_work_is_done(
    command: Command, tmp_path: Path, scripted: AnsweringModel
) -> None:
    assert command(*RUN, "--dataset", "two", "--output", tmp_path).code == cli.DONE
    asked = len(scripted.asked)
    refused = command(*RUN, "--dataset", "one,two", "--output", tmp_path, "--set", "seed=1")
    assert refused.code == cli.USAGE
    assert "seed: 0 → 1" in refused.err
    assert len(refused.err.strip().splitlines()) <= 4
    assert len(scripted.asked) == asked
    assert not (tmp_path / "one").exists()


#: Options, the benchmark of Almanac, and the labels of the methods that are run.
COMBINED = [
    (
        "--method wo-rag,dragin --threshold 0.8,1.2",
        "iirc",
        "wo-rag dragin-threshold=0.8 dragin-threshold=1.2",
    ),
    ("--method dragin,sr-rag --set top_n=5", "iirc", "dragin-top_n=5 sr-rag"),
    (
        "--set variant=reference,paper --set what=qfs,question",
        "iirc",
        "dragin-reference dragin-reference-what=question dragin dragin-what=question",
    ),
    (
        "--set when=rind,every-sentence --set threshold=1",
        "iirc",
        "dragin-threshold=1.0 dragin-when=every-sentence",
    ),
    ("--set top_k=5 --set max_new_tokens=100", "iirc", "dragin-max_new_tokens=100-top_k=5"),
    (
        "--set when=rind@0.5,margin --set what=question",
        "iirc",
        "dragin-what=question-threshold=0.5 dragin-when=margin-what=question",
    ),
    (
        "--set check_content_words=no --method dragin,flare --set variant=reference",
        "iirc",
        "dragin-reference-check_content_words=False flare-reference",
    ),
    ("--preset llama2-7b-chat:paper", "2wikimultihopqa", "dragin-reference-top_n=40"),
    (
        "--preset released --model meta-llama/Llama-2-7b-chat-hf",
        "2wikimultihopqa",
        "dragin-reference-threshold=1.0",
    ),
    (
        "--preset llama2-7b-chat:paper --set threshold=0.5,1.2",
        "hotpotqa",
        (
            "dragin-reference-threshold=0.5-top_n=35-max_new_tokens=100"
            " dragin-reference-top_n=35-max_new_tokens=100"
        ),
    ),
    (
        "--preset llama2-7b-chat:paper --set when=every-sentence",
        "2wikimultihopqa",
        "dragin-reference-when=every-sentence-top_n=40",
    ),
    (
        "--preset llama2-7b-chat:paper --set 'what=qfs(top_n=5)'",
        "hotpotqa",
        "dragin-reference-threshold=1.3-top_n=5-max_new_tokens=100",
    ),
    (
        "--preset llama2-7b-chat:released --set when=margin --set variant=paper",
        "hotpotqa",
        "dragin-when=margin-top_n=35-max_new_tokens=100",
    ),
    (
        "--preset llama2-7b-chat:released --method flare",
        "iirc",
        "flare-reference-threshold=0.08-max_new_tokens=128",
    ),
]


@pytest.mark.parametrize(("given", "data", "labels"), COMBINED)
def test_settings_are_combined_and_presets_give_way_to_them(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    data: str,
    labels: str,
) -> None:
    seen: list[str] = []
    one = dl.benchmark(f"almanac/{data}", limit=1)
    monkeypatch.setattr(dl, "benchmark", lambda source, **_: one)
    monkeypatch.setattr(options, "check_parts", lambda given: None)
    monkeypatch.setattr(options, "open_lab", lambda given, **how: nullcontext())
    monkeypatch.setattr(
        cli_run,
        "run_all",
        lambda lab, wanted, root, **how: seen.extend(method.label for method in wanted[one]),
    )
    ran = command("run", *shlex.split(given), "--output", tmp_path)
    assert ran.code == cli.DONE, ran.err
    assert seen == labels.split()


def test_a_failed_question_is_status_1_and_tried_again(
    command: Command, tmp_path: Path, scripted: AnsweringModel
) -> None:
    scripted.failing = {2: ModelError("too long\nby far")}
    ran = command(*RUN, "--dataset", "one", "--output", tmp_path)
    assert ran.code == cli.FAILED
    assert [row[0] for row in rows(ran.out)] == [
        "dragin-what=question (1 failed)",
        "wo-rag (1 failed)",
    ]
    assert (
        "error: 2 answers failed; the first (q2) with: too long\nThe same command tries them"
        " again\n" in ran.err
    )
    one = command("run", "--method", "wo-rag", "--dataset", "one", "--output", tmp_path / "one")
    assert "error: 1 answer failed; the first (q2) with: too long\n" in one.err
    scripted.failing, scripted.asked[:] = {}, []
    ran = command(*RUN, "--dataset", "one", "--output", tmp_path)
    assert ran.code == cli.DONE
    assert scripted.asked == [2]  # by both methods


def test_ctrl_c_keeps_what_was_finished_and_says_how_to_go_on(
    command: Command, tmp_path: Path, scripted: AnsweringModel
) -> None:
    scripted.failing = {3: KeyboardInterrupt()}
    ran = command(*RUN, "--dataset", "one", "--output", tmp_path)
    assert ran.code == cli.INTERRUPTED
    assert (
        f"what was finished is kept below {tmp_path}; the same command continues from there"
        in ran.err
    )
    assert ran.err.endswith("interrupted\n")
    assert [row[0] for row in rows(ran.out)] == ["dragin-what=question (2 of 3)"]


def test_a_disk_that_is_full(
    command: Command, tmp_path: Path, scripted: AnsweringModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragin_lab.run import runwriter

    def full(path: Path, data: bytes) -> None:
        raise RunError(f"{path}: a line was not written: No space left on device", begun=True)

    monkeypatch.setattr(runwriter, "append_line", full)
    ran = command(*RUN, "--dataset", "one", "--output", tmp_path)
    assert ran.code == cli.FAILED
    assert "No space left on device\nThe same command continues from there" in ran.err


# -- one folder, from Python and from the command line ---------------------------------------------


@pytest.mark.parametrize("first", ["python", "command line"])
def test_each_side_completes_what_the_other_began(
    command: Command, tmp_path: Path, scripted: AnsweringModel, first: str
) -> None:
    methods = [dl.method("dragin", what="question"), dl.method("wo-rag")]

    def python(count: int) -> None:
        dl.Lab(scripted).run(
            Benchmark("one", tuple(questions(count))), methods, output=tmp_path, progress=False
        )

    def line(count: int) -> None:
        opened = Benchmark("one", tuple(questions(count)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dl, "benchmark", lambda source, **_: opened)
            ran = command(*RUN, "--dataset", "one", "--output", tmp_path)
        assert ran.code == cli.DONE, ran.err

    sides = [python, line] if first == "python" else [line, python]
    for side, count, asked in ((0, 1, [1]), (1, 1, [1]), (1, 2, [1, 2]), (0, 2, [1, 2])):
        sides[side](count)
        assert sorted(set(scripted.asked)) == asked
    begun = list(scripted.asked)
    sides[1](2)
    assert scripted.asked == begun
    assert {record.folder.relative_to(tmp_path).as_posix() for record in find_runs(tmp_path)} == {
        "one/dragin-what=question",
        "one/wo-rag",
    }


def test_a_run_that_is_given_twice_counts_once(
    command: Command, tmp_path: Path, scripted: AnsweringModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(*RUN, "--dataset", "one", "--output", tmp_path / "runs").code == cli.DONE
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    once = command("table", "runs").out
    assert once.count("wo-rag") == 1
    for other in ("copy", "link", "./runs", tmp_path / "runs" / "one"):
        assert command("table", "runs", other).out == once
    (changed,) = (tmp_path / "copy").rglob("wo-rag*/predictions.jsonl")
    changed.write_text("".join(changed.read_text().splitlines(keepends=True)[:2]))
    told_apart = command("table", "runs", "copy").out
    assert "wo-rag (runs/one)" in told_apart
    assert "wo-rag (copy/one) (2 of 3)" in told_apart
    assert (
        "1 of 3 questions are not in all methods and are left out: wo-rag (copy/one) lacks 1"
        in told_apart
    )


# -- on a terminal ---------------------------------------------------------------------------------


@pytest.mark.deep
def test_a_terminal_gets_a_bar_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    out, shown = interrupt_on_terminal(
        "EM=", "run", "--method", "wo-rag", "--limit", 200, "--output", tmp_path
    )
    assert "/200 [" in shown
    assert "the same command continues from there" in shown
    assert "of 200)" in out
    assert 0 < len(find_runs(tmp_path)[0].predictions) < 200
