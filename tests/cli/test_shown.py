"""What the command line shows of what it was given, and of what files, servers and models say."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from command import ROOT, Command
from run_folders import read_config, write_config, write_run

import dragin_lab as dl
from dragin_lab.cli.ask import follow_events, print_trace
from dragin_lab.cli.outputs import echo
from dragin_lab.run.episodes import Retrieved, TokenWritten
from dragin_lab.trace.trace import Question, Trace

# -- what was written to be shown on somebody's terminal -------------------------------------------

#: The title of the window, colours in seven and eight bits, a bell, what came before struck out,
#: reversed text.
HOSTILE = "\x1b]0;x\x07 \x1b[31m \x9b31m \x08\x7f \u202egnp.exe\u2066 \r"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(command: Command, *args: object) -> str:
    """What a command prints, which must be something and nothing that a terminal obeys."""
    ran = command(*args)
    text = ran.out + ran.err
    assert "gnp.exe" in text
    assert not UNSAFE.search(text)
    return text


#: Printed as it is: progress, counts and views are printable.
PRINTABLE = {"self", "counts", "self.static().text", "title"}


def test_whatever_is_printed_is_made_printable() -> None:
    """Commands print by ``echo``; elsewhere, what ``print`` and the names of bars say goes
    through ``printable``.
    """
    printed = []
    for file in (ROOT / "dragin_lab").rglob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call)
        ]
        for call in calls:
            function = ast.unparse(call.func)
            names = (
                [key.value for key in call.keywords if key.arg == "desc"]
                if function == "tqdm"
                else []
            )
            for value in [
                *names,
                *(call.args[:1] if function in ("print", "click.echo", "click.secho") else []),
            ]:
                printed.append((file.name, ast.unparse(value)))
    raw = [
        one for one in printed if not one[1].startswith("printable(") and one[1] not in PRINTABLE
    ]
    assert sorted(raw) == [
        ("ask.py", "trace_text(trace, width=width, color=is_coloured(sys.stdout))"),
        ("outputs.py", "click.style(shown, dim=True) if dim else shown"),
    ]


def test_every_control_character_is_replaced_and_line_ends_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    every = "".join(map(chr, [*range(0xA0), *range(0x2000, 0x2070)]))
    echo(every + "\ud800", err=True)
    text = capsys.readouterr().err
    assert not UNSAFE.search(text)
    assert "\t\n" in text
    assert len(text) == len(every) + 2


def test_a_run_cannot_write_to_the_terminal(command: Command, tmp_path: Path) -> None:
    folder = write_run(tmp_path, dataset=HOSTILE)
    shown(command, "table", tmp_path)
    with (folder / "predictions.jsonl").open("ab") as file:
        file.write(b"damaged\n")
    shown(command, "table", tmp_path)
    write_config(folder, read_config(folder) | {"seed": HOSTILE})
    shown(command, "table", tmp_path)


@pytest.mark.parametrize(
    "words", [("ask", "Who?", "--corpus"), ("ask", "Who?", "--exemplars"), ("table",)]
)
def test_the_name_of_a_file_cannot_write_to_the_terminal(
    command: Command, words: tuple[str, ...]
) -> None:
    shown(command, *words, f"./{HOSTILE}.jsonl")
    assert "Traceback" in shown(command, "--debug", *words, f"./{HOSTILE}.jsonl")


def test_a_model_cannot_write_to_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    follow_events([TokenWritten(0, "draft", 0, HOSTILE, 0.0, 0.0), Retrieved(0, HOSTILE, ())])  # type: ignore[arg-type]
    text = capsys.readouterr().err
    assert text.count("gnp.exe") == 2
    assert not UNSAFE.search(re.sub(r"\x1b\[(0|22)m", "", text))


def test_a_trace_has_its_own_colours_on_a_terminal_and_no_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(
        Question("1", f"Who {HOSTILE}"),
        dl.method("wo-rag").settings,
        text=HOSTILE,
        ended="answered",
    )
    for coloured in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda on=coloured: on)
        monkeypatch.delenv("NO_COLOR", raising=False)
        print_trace(trace)
        text = capsys.readouterr().out
        assert ("\x1b[1mQuestion\x1b[0m" in text) == coloured
        assert "gnp.exe" in text
        assert not UNSAFE.search(re.sub(r"\x1b\[[0-9;]*m", "", text))
        assert "\x1b[31m" not in text  # which stands in the trace
