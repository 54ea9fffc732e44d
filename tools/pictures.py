"""Write the pictures of README.md and docs/views.md, as a browser draws them, light and dark, and
README's table.

    python -m tools.pictures          views of the demo, asking the embedded model
    python -m tools.pictures real     the trace of notebook 08 in which a passage mends an answer
    python -m tools.pictures table    the table of the demo in README.md

All but the table need chromium (or Chrome) on the PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.cli.app import status
from dragin_lab.core.method import PAPERS
from dragin_lab.data.datasets import load_questions
from tools.base import DOCS, ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-sync",
)
FLAGS += (
    "--disable-background-networking",
    "--disable-component-update",
    "--force-device-scale-factor=1.5",
)
WIDTH = 1060
#: The pictures and their heights.
HEIGHTS = {"trace": 1130, "real": 838, "used": 462, "curve": 640, "heatmap": 720, "methods": 900}
#: DRAGIN in the pictures, as in README.md's ten lines: the equations, with a query that selects
#: among its candidates.
DRAGIN = {"variant": "paper", "threshold": 0.5, "top_n": 5}
#: Compared with DRAGIN side by side.
OTHERS = ("wo-rag", "sr-rag", "fs-rag", "flare")


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        sys.exit(f"no browser found; put one of {', '.join(BROWSERS)} on the PATH")
    return found


def telling_traces() -> list[dl.Trace]:
    """The first demo question that DRAGIN reads off two retrievals and the model alone answers
    wrong, by each method.

    DRAGIN's comes last. An answer is read off where a passage states it, and no yes or no can be
    guessed.
    """
    lab = dl.Lab()
    questions = load_questions("almanac/2wikimultihopqa", 40, split="dev")
    dragin = dl.method("dragin", **DRAGIN)
    for without, trace in zip(
        lab.ask_many(questions, "wo-rag"), lab.ask_many(questions, dragin), strict=True
    ):
        if (
            not without.scores["em"]
            and read_off(trace)
            and trace.counters["retrievals"] == 2
            and selects(trace)
        ):
            others = [lab.ask(trace.question, name) for name in OTHERS]
            return [*others, trace]
    sys.exit("no demo question shows what retrieval changed")


def read_off(trace: dl.Trace) -> bool:
    """Whether the answer is right, and stands in a passage that was found before it was written."""
    found = [passage.text for step in trace.steps for passage in step.passages]
    guessed = trace.answer.lower() in ("yes", "no")
    return bool(trace.scores["em"]) and not guessed and any(trace.answer in text for text in found)


def selects(trace: dl.Trace) -> bool:
    """Whether each query left some of its candidates out."""
    return all(not step.query.chosen.all() for step in trace.steps if step.query is not None)


def mended_trace() -> dl.Trace:
    """The recorded trace of notebook 08 in which a passage mends what SmolLM2 invented."""
    return dl.Trace.load(ROOT / "corpora" / "real_traces" / "selected.trace")


def shoot(program: str, page: Path, picture: Path, height: int, *, dark: bool) -> None:
    with tempfile.TemporaryDirectory() as profile:
        window = f"--window-size={WIDTH},{height}"
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        options = [window, scheme, f"--user-data-dir={profile}", f"--screenshot={picture}"]
        command = [program, *FLAGS, *options, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    print(picture)


def demo_table() -> str:
    """The means of the demo's methods, in the order of the paper's Table 1."""
    with tempfile.TemporaryDirectory() as folder:
        if (code := status(["demo", "--output", folder])) != 0:
            sys.exit(code)
        runs = {record.config["method"]["name"]: record for record in dl.Runs.load(folder).records}
        means = dl.Runs([runs[name] for name in PAPERS]).table().frame[""]
    means = means.loc[:, means.columns.get_level_values("part").isin(["", "mean"])]
    means.columns = list(means.columns.get_level_values("measure"))
    return str(means.rename_axis(index=None).to_string(float_format="{:.3f}".format))


def write_table() -> None:
    """Put the demo's table between its marks in README.md."""
    path = ROOT / "README.md"
    head, mark, rest = re.split(r"(<!-- demo-table.*?-->\n)", path.read_text(encoding="utf-8"))
    _, end, tail = rest.partition("<!-- end -->")
    path.write_text(f"{head}{mark}```\n{demo_table()}\n```\n{end}{tail}", encoding="utf-8")
    print(path)


def shoot_all(pages: dict[str, Any]) -> None:
    """Write a picture of each page, light and dark."""
    program = browser()
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, html in pages.items():
            page = Path(scratch) / f"{name}.html"
            views.page(page, *html)
            for theme in ("light", "dark"):
                shoot(
                    program,
                    page,
                    folder / f"{name}-{theme}.png",
                    HEIGHTS[name],
                    dark=theme == "dark",
                )


def main() -> None:
    if sys.argv[1:] == ["table"]:
        write_table()
        return
    if sys.argv[1:] == ["real"]:
        shoot_all({"real": [mended_trace()]})
        return
    traces = telling_traces()
    pages = {
        "trace": [traces[-1]],
        "heatmap": [traces[-1].heatmap()],
        "methods": [views.compare(traces)],
    }
    pages["curve"] = [dl.Curve.load(ROOT / "corpora" / "almanac_curve_dragin.zip").plot()]
    pages["used"] = [dl.Lab().attribute(traces[-1])]
    shoot_all(pages)


if __name__ == "__main__":
    main()
