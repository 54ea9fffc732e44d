"""Wrong usage of every command: status 2, one or two lines that say what would be right, and
nothing done.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command import Command, environment

WRONG = [
    ("ask", ("QUESTION",)),
    ("ask ''", ("question is empty",)),
    ("ask '\udcff?'", ("half a character at 0",)),
    ("ask Who? --set threshold=abc", ("threshold='abc' is not a number",)),
    ("ask Who? --set threshold", ("write KEY=VALUE",)),
    ("ask Who? --set threshold=1 --method sr-rag", ("none of the methods takes it",)),
    ("ask Who? --set threshold=1,2", ("dragin-threshold=1.0, dragin-threshold=2.0", "one method")),
    ("ask Who? --method dragin,flare", ("dragin, flare", "one method")),
    ("ask Who? --set layer=0,1", ("takes one value", "heads=[0,3]")),
    ("ask Who? --set theta=1", ("did you mean 'threshold'?",)),
    ("ask Who? --set treshold=1", ("does not exist; did you mean 'threshold'?",)),
    ("ask Who? --set variant=refrence", ("did you mean 'reference'?",)),
    ("ask Who? --set model=x", ("is no setting", "--help")),
    ("ask Who? --set quantization=5bit", ("'5bit'", "did you mean '8bit'?")),
    ("ask Who? --save no-such-folder/a.trace", ("no-such-folder", "make it first")),
    ("ask Who? --html .", ("is a folder",)),
    ("ask Who? --html a.html --save ./a.html", ("a.html", "both")),
    ("ask Who? --corpus .", ("holds no passages", "a folder of .txt and .md files")),
    ("ask Who? --set corpus_fields=id=nr", ("give one as corpus",)),
    ("demo --set threshold=1", ("do not measure alike",)),
    ("aks Who?", ("'aks'", "'ask'")),
    ("run --method dragin,", ("''",)),
    ("run --limit 0", ("--limit 0", "1 or more")),
    ("run --batch-size 0", ("--batch-size 0", "1 or more")),
    ("run --threshold flare=0.1", ("flare=0.1",)),
    ("run --threshold abc", ("threshold='abc' is not a number",)),
    ("run --threshold 1,,2", ("--threshold 1,,2", "several between commas")),
    ("run --threshold 1 --set threshold=2", ("give one of the two",)),
    ("ask Who? --threshold 1,2", ("one method",)),
    ("run --set top_k=5,,6", ("KEY=VALUE",)),
    ("run --method dragin,flare --set threshold=1", ("do not measure alike", "one by one")),
    ("run --output /dev/null/x", ("--output",)),
    ("run --preset paper", ("say for which model", "llama2-7b-chat:paper")),
    ("run --preset llama2-7b-chat:paper --method flare", ("no settings of flare", "released")),
    ("run --set n=2 --set n=3 --method fl-rag", ("n is given twice",)),
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command is given in an empty folder."""
    monkeypatch.chdir(tmp_path)


def check_refused(command: Command, line: str, says: tuple[str, ...]) -> None:
    before = sorted(Path().iterdir())
    command.refused(*shlex.split(line), says=says)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(("line", "says"), WRONG)
def test_wrong_usage_is_two_lines_and_status_2(
    command: Command, line: str, says: tuple[str, ...]
) -> None:
    check_refused(command, line, says)


def test_wrong_names_are_refused_without_torch() -> None:
    ask = (
        "--model ./no",
        "--model no/x",
        "--retriever dense:./no",
        "--retriever bm52",
        "--corpus no",
    )
    run = ("--method no", "--dataset no")
    wrong = [f"ask W {names}" for names in ask] + [f"run {names}" for names in run]
    listing = (
        "import sys; from dragin_lab.cli import app;"
        f"print({{app.status(line.split()) for line in {wrong}}}, 'torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", listing], env=environment(), capture_output=True, check=True
    )
    assert ran.stdout.decode().split() == ["{2}", "False"]


RECORD = {"_id": "a", "question": "Who?", "answer": "Li"}


def test_two_data_sets_of_one_name(command: Command) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "q.json").write_text(json.dumps([RECORD]))
    check_refused(command, "run --dataset a/q.json,b/q.json", ("called 'q' too", "one by one"))
