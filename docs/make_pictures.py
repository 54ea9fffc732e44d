"""Write the pictures that README.md and docs/views.md show: views of the demo as a browser draws them, light and dark.

Needs chromium (or Chrome) on the PATH. ``python docs/make_pictures.py`` from anywhere; asks the embedded model.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dragin_lab as dl
from dragin_lab import views
from dragin_lab.almanac import demo_questions

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1.5")
WIDTH = 1060
#: The pictures and their heights.
HEIGHTS = {"trace": 1130, "heatmap": 1010, "methods": 900}
#: Compared with DRAGIN side by side.
OTHERS = ("wo-rag", "sr-rag", "fs-rag", "flare")


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        sys.exit(f"no browser found; put one of {', '.join(BROWSERS)} on the PATH")
    return found


def telling_traces() -> list[dl.Trace]:
    """The first demo question that DRAGIN answers right after two retrievals and the model alone wrong, by each method.

    DRAGIN's comes last.
    """
    lm, retriever, questions = dl.LanguageModel.load(), dl.BM25(dl.Corpus.load()), demo_questions()
    alone = dl.run_many(dl.method("wo-rag"), lm, retriever, questions)
    for without, trace in zip(alone, dl.run_many(dl.method("dragin"), lm, retriever, questions), strict=True):
        if not without.scores["em"] and trace.scores["em"] and trace.counters["retrievals"] == 2:
            others = [dl.run(dl.method(name), lm, retriever, trace.question) for name in OTHERS]
            return [*others, trace]
    sys.exit("no demo question shows what retrieval changed")


def shoot(program: str, page: Path, picture: Path, height: int, *, dark: bool) -> None:
    with tempfile.TemporaryDirectory() as profile:
        window = f"--window-size={WIDTH},{height}"
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        options = [window, scheme, f"--user-data-dir={profile}", f"--screenshot={picture}"]
        command = [program, *FLAGS, *options, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    print(picture)


def main() -> None:
    program = browser()
    traces = telling_traces()
    pages = {
        "trace": views.trace_html(traces[-1], full_page=True),
        "heatmap": traces[-1].heatmap().page(),
        "methods": views.side_by_side(traces).page(),
    }
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, html in pages.items():
            page = Path(scratch) / f"{name}.html"
            page.write_text(html, encoding="utf-8")
            for theme in ("light", "dark"):
                shoot(program, page, folder / f"{name}-{theme}.png", HEIGHTS[name], dark=theme == "dark")


if __name__ == "__main__":
    main()
