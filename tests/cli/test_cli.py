"""The command line: what it prints, what it writes, how it ends, and that nothing that was
finished is lost.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answering import embedded
from command import PATIENCE, QUESTION, ROOT, Command, start

from dragin_lab.almanac import embedded_model_path
from dragin_lab.cli import app as cli
from dragin_lab.cli.options import build_methods, read_loading, read_settings
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Trace

WINDOW = 256
#: A question where the answer does not matter.
BRIEF = ("ask", QUESTION, "--set", "max_new_tokens=8")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "100")
    return Command(capsys)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with a small window."""
    path = Path(
        shutil.copytree(embedded_model_path(), tmp_path_factory.mktemp("narrow") / "narrow")
    )
    settings = json.loads((path / "config.json").read_text()) | {"max_position_embeddings": WINDOW}
    (path / "config.json").write_text(json.dumps(settings))
    return path


# -- what goes right -------------------------------------------------------------------------------


def test_help_lists_the_commands_and_their_defaults(command: Command) -> None:
    ran = command("--help")
    assert ran.code == cli.DONE
    for name in ("ask", "demo", "doctor", "run", "table"):
        assert f"\n  {name}" in ran.out
    assert "..." not in ran.out.partition("Commands")[2]  # no description is cut
    said = " ".join(command("ask", "--help").out.split())
    for part in (
        "default: dragin",
        "--threshold",
        "when=margin@0.6",
        "max_new_tokens=64",
        "top_k=3",
    ):
        assert part in said
    ran = command()
    assert "Commands" in ran.out + ran.err
    assert ran.code in (cli.DONE, cli.USAGE)  # click changed its mind about this in 8.2


@pytest.mark.parametrize("name", ["", "ask", "run", "table", "doctor", "demo", "data fetch"])
def test_help_fits_a_terminal_of_80_columns_without_colours(
    command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = command(*name.split(), "--help").out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert not any("\x1b" in line or line.strip()[-1:] == "…" for line in lines)
    assert len(lines) <= 110  # two screens of 55 lines


def test_ask_answers_saves_and_shows_again(command: Command, tmp_path: Path) -> None:
    trace, page = tmp_path / "a.trace", tmp_path / "a.html"
    ran = command("ask", QUESTION, "--gold", "nobody", "--save", trace, "--html", page)
    assert ran.code == cli.DONE
    assert QUESTION in ran.out
    assert ran.err.splitlines() == [f"trace written to {trace}", f"page written to {page}"]
    loaded = Trace.load(trace)
    assert loaded.question.golds == ("nobody",)
    assert loaded.answer in ran.out
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_ask_takes_parts_settings_and_exemplars(command: Command, tmp_path: Path) -> None:
    examples = tmp_path / "e.yaml"
    examples.write_text(
        "- question: Is ice cold?\n  rationale: Ice is frozen.\n  answer: 'yes'\n", encoding="utf-8"
    )
    trace = tmp_path / "a.trace"
    corpus = tmp_path / "own.jsonl"
    corpus.write_text('{"text": "The Silent Fukain is a film."}\n')
    given = [
        "variant=paper",
        "threshold=0.5",
        "what=last-n",
        "top_n=5",
        "top_k=1",
        "max_new_tokens=20",
    ]
    given += ["layer=0", "heads=[0,1]", "sample=true"]
    ran = command(
        "ask",
        QUESTION,
        *(word for one in given for word in ("--set", one)),
        "--exemplars",
        examples,
        "--save",
        trace,
        "--corpus",
        corpus,
        "--model",
        embedded_model_path(),
        "--set",
        "seed=3",
        "--layout",
        "flare",
    )
    assert ran.code == cli.DONE, ran.err
    said = Trace.load(trace)
    wanted = {
        "threshold": 0.5,
        "what": "last-n",
        "top_n": 5,
        "top_k": 1,
        "max_new_tokens": 20,
        "variant": "paper",
    }
    assert {key: said.method[key] for key in wanted} == wanted
    assert [said.provenance[key] for key in ("layer", "heads", "decoding", "seed")] == [
        0,
        [0, 1],
        "sample",
        3,
    ]
    assert said.provenance["template"]["layout"] == "flare"
    assert "Is ice cold?" in said.steps[0].prompt.text


def test_a_model_is_loaded_as_the_options_say() -> None:
    pairs = ("device_map=auto", 'max_memory={0: "9GiB", "cpu": "1GiB"}', "quantization=4bit")
    given = read_settings(None, None, (*pairs, 'device_map={"": "cpu"}')[1:])
    assert read_loading({"given": given}) == {
        "max_memory": {0: "9GiB", "cpu": "1GiB"},
        "quantization": "4bit",
        "device_map": {"": "cpu"},
    }


@pytest.mark.parametrize("pair", ["variant=fp16", "tp_plan=auto", "an_argument_of_tomorrow=1"])
def test_whatever_is_of_no_method_is_handed_to_the_loading_of_the_model(pair: str) -> None:
    given = read_settings(None, None, ("threshold=0.5", "variant=reference", "seed=1"))
    name, _, value = pair.partition("=")
    values = read_settings(None, None, (pair,))[name]
    given[name] = given.get(name, ()) + values
    assert list(map(str, read_loading({"given": given}).values())) == [value]
    (method,) = build_methods(["dragin"], given)
    assert (method.variant, method.threshold) == ("reference", 0.5)


def test_an_argument_that_nobody_takes_is_refused_as_in_python(command: Command) -> None:
    for name in ("ask", "demo"):
        asked = (name, QUESTION) if name == "ask" else (name, "--limit", "1")
        ran = command(*asked, "--set", "an_argument_of_tomorrow=1")
        assert ran.code != cli.DONE
        assert "argument 'an_argument_of_tomorrow' does not exist" in ran.err


# -- what does not fit into the window -------------------------------------------------------------


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_a_passage_of_100_000_words_does_not_eat_the_memory(
    command: Command, tmp_path: Path, narrow: Path, variant: str
) -> None:
    corpus = tmp_path / "c.tsv"
    corpus.write_bytes(b"id\ttext\ttitle\n1\t" + b"mother director film " * 33_334 + b"\tT\n")
    how = (
        "--model",
        narrow,
        "--corpus",
        corpus,
        "--method",
        "sr-rag",
        "--set",
        f"variant={variant}",
    )
    ran = command("ask", QUESTION, *how)
    if variant == "paper":
        assert ran.code == cli.DONE
        assert "dropped 1 of 1 passages" in ran.out
        assert "too small for 1 answer: " in ran.err
    else:
        assert ran.code == cli.FAILED
        assert ran.out == ""  # nothing was written yet
        assert f"{WINDOW:,}" in ran.err
        assert len(ran.err.splitlines()) <= 3


def test_a_question_longer_than_the_window(command: Command, narrow: Path) -> None:
    long = QUESTION + " And of The Silent Fukain?" * (WINDOW // 5)  # at least five tokens each
    how = ("--model", narrow, "--method", "wo-rag", "--set", "max_new_tokens=2")
    asked = ("ask", long, *how)
    command.refused(
        *asked,
        says=("the question with the answer so far", f"window of {WINDOW} tokens", "shorten"),
    )
    ran = command(*asked, "--set", "variant=reference")
    assert ran.code == cli.DONE
    assert f"more than the model's window of {WINDOW}" in ran.out
    longer = ("ask", long * 8, *how, "--set", "variant=reference")
    ran = command.refused(*longer, code=cli.FAILED, says=("more than 8 times", f"{WINDOW:,}"))
    assert len(ran.err) < 600


# -- what fails at the end -------------------------------------------------------------------------


def test_one_output_that_fails_does_not_keep_the_other_back(
    command: Command, tmp_path: Path
) -> None:
    for option, other, says in (
        ("--save", "--html", "is not a regular file"),
        ("--html", "--save", "not saved: No space"),
    ):
        ran = command(*BRIEF, option, "/dev/full", other, tmp_path / "a.file")
        assert ran.code == cli.FAILED
        assert "\nended " in ran.out
        assert ran.err.splitlines()[0].endswith(f" written to {tmp_path / 'a.file'}")
        assert ran.err.splitlines()[1].startswith(f"error: /dev/full: {says}")


def test_what_breaks_unforeseen_is_named_with_and_without_its_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragin_lab.retrieval.bm25 import BM25

    def broken(self: BM25, query: str, k: int) -> None:
        raise ZeroDivisionError("the index is upside down")

    monkeypatch.setattr(BM25, "search", broken)
    ask = (*BRIEF, "--set", "threshold=0")  # so that it searches
    ran = command(*ask)
    assert ran.code == cli.FAILED
    assert "ZeroDivisionError: the index is upside down" in ran.err
    assert "--debug" in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) == 2
    assert "ended by an error" in ran.out  # the draft before the search was finished
    for args in (("--debug", *ask), (*ask, "--debug")):
        ran = command(*args)
        assert ran.code == cli.FAILED
        assert "Traceback" in ran.err
        assert "in broken" in ran.err


def test_a_model_that_runs_out_of_memory_says_what_to_do(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragin_lab.engines.load import LanguageModel

    def full(self: LanguageModel, *_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 52.00 GiB.\nand so on")

    monkeypatch.setattr(LanguageModel, "write", full)
    command.refused("ask", QUESTION, code=cli.FAILED, says=("memory", "top_k", "paper variant"))


def test_warnings_of_libraries_are_for_debugging(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    from dragin_lab.run import setup as templates

    given = templates.default_template

    def noisy(*args: Any) -> Any:
        warnings.warn_explicit("noise", UserWarning, "lib.py", 1)
        return given(*args)

    monkeypatch.setattr(templates, "default_template", noisy)
    assert "noise" not in command(*BRIEF, "--method", "wo-rag").err
    assert "noise" in command(*BRIEF, "--method", "wo-rag", "--debug").err


def test_ctrl_c_keeps_what_was_finished(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dragin_lab.engines.load import LanguageModel

    write, drafts = LanguageModel.write, []

    def stops(self: LanguageModel, *args: Any, **options: Any) -> Any:
        if len(drafts) == 2:
            raise KeyboardInterrupt
        drafts.append(write(self, *args, **options))
        return drafts[-1]

    monkeypatch.setattr(LanguageModel, "write", stops)
    trace = tmp_path / "a.trace"
    ran = command(
        "ask", QUESTION, "--method", "fl-rag", "--set", "max_new_tokens=64", "--save", trace
    )
    assert (ran.code, ran.err.splitlines()[-1]) == (cli.INTERRUPTED, "interrupted")
    assert f"trace written to {trace}" in ran.err
    loaded = Trace.load(trace)
    assert (loaded.ended, loaded.counters["retrievals"]) == ("cancelled", 3)
    assert len(loaded.steps[0].continuation or ()) == 16
    assert "cancelled" in ran.out


# -- processes of their own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [("table", 2), pytest.param((*BRIEF, "--save", "a.trace"), marks=pytest.mark.deep)]
)
def test_a_reader_that_leaves_early_is_no_failure_and_loses_no_trace(
    args: tuple[object, ...], tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(*args, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (
        cli.DONE,
        b"trace written to a.trace\n" * ("--save" in args),
    )
    assert [Trace.load(file).ended for file in tmp_path.iterdir()] == ["length"] * (
        "--save" in args
    )


def test_a_terminal_that_lacks_characters_still_shows_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # click itself takes care of ASCII
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(SystemExit) as ended:
        cli.main(["ask", f"{QUESTION} Zoë → 電影", *BRIEF[2:]])
    assert (ended.value.code, capsys.readouterr().err) == (cli.DONE, "")
    assert QUESTION.encode() in terminal.buffer.getvalue()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_the_reference_page(
    shell: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    (variable,) = set(re.findall(rf"(\w+)={shell}_source dragin-lab", page))
    monkeypatch.setenv(variable, f"{shell}_source")
    assert variable in command().out
    monkeypatch.setenv(variable, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "dragin-lab de")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert "demo" in command().out


def test_on_a_terminal_each_text_has_its_own_line_and_what_is_kept_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    ran = command(
        "ask",
        QUESTION,
        "--set",
        "variant=reference",
        "--set",
        "threshold=0.3",
        "--set",
        "max_new_tokens=24",
    )
    assert ran.code == cli.DONE
    trace = embedded().ask(
        QUESTION, "dragin", variant="reference", threshold=0.3, max_new_tokens=24
    )
    written = [step.draft.text for step in trace.steps]
    written += [step.continuation.text for step in trace.steps if step.continuation is not None]
    assert len(written) > len(trace.steps)
    lines = [line.strip() for line in ran.err.splitlines()]
    for text in written:
        assert text.strip() in lines
    for step in trace.steps:
        assert step.continuation is None or f"kept: {step.kept.strip()}" in lines
