"""Write the pictures that README.md shows: a trace of the demo as a browser draws it, light and dark.

Needs chromium (or Chrome) on the PATH. ``python docs/make_pictures.py`` from anywhere; asks the embedded model.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dragin_lab as dl
from dragin_lab.almanac import demo_questions
from dragin_lab.views.trace import trace_html

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1.5")
SIZE = (1060, 1130)


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        sys.exit(f"no browser found; put one of {', '.join(BROWSERS)} on the PATH")
    return found


def telling_trace() -> dl.Trace:
    """The first demo question that is answered wrong without retrieval and right by DRAGIN after two of them."""
    lm, retriever, questions = dl.LanguageModel.load(), dl.BM25(dl.Corpus.load()), demo_questions()
    alone = dl.run_many(dl.method("wo-rag"), lm, retriever, questions)
    for without, trace in zip(alone, dl.run_many(dl.method("dragin"), lm, retriever, questions), strict=True):
        if not without.scores["em"] and trace.scores["em"] and trace.counters["retrievals"] == 2:
            return trace
    sys.exit("no demo question shows what retrieval changed")


def shoot(program: str, page: Path, picture: Path, *, dark: bool) -> None:
    with tempfile.TemporaryDirectory() as profile:
        window = f"--window-size={SIZE[0]},{SIZE[1]}"
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        options = [window, scheme, f"--user-data-dir={profile}", f"--screenshot={picture}"]
        command = [program, *FLAGS, *options, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    print(picture)


def main() -> None:
    program = browser()
    html = trace_html(telling_trace(), full_page=True)
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "trace.html"
        page.write_text(html, encoding="utf-8")
        for theme in ("light", "dark"):
            shoot(program, page, folder / f"trace-{theme}.png", dark=theme == "dark")


if __name__ == "__main__":
    main()
