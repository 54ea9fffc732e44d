"""A saved trace and its page are the same under another locale, time zone and hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dragin_lab as dl

ASK = """
import sys
import dragin_lab as dl
question = "In which town was the director of The Ashen Rooftop born? \\u0130\\u00df \\u96fb\\u5f71"
trace = dl.Lab().ask(question, threshold=0.25, gold="Hartfold")
trace.seconds = 1.0  # which the page shows
trace.save(sys.argv[1] + ".trace")
open(sys.argv[1] + ".html", "wb").write(trace.overview().html.encode())
"""
PLACES = {
    "here": {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "1"},
    "there": {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TZ": "Pacific/Kiritimati",
        "PYTHONHASHSEED": "2",
    },
}


@pytest.mark.slow
def test_a_saved_trace_is_the_same_elsewhere(tmp_path: Path) -> None:
    for name, place in PLACES.items():
        command = [sys.executable, "-c", ASK, str(tmp_path / name)]
        subprocess.run(command, env=os.environ | place, cwd=tmp_path, check=True)
    here, there = (dl.Trace.load(tmp_path / f"{name}.trace") for name in PLACES)
    assert here.diff(there) == ""
    assert len(here.retrievals) > 0
    assert (here.provenance, here.question) == (there.provenance, there.question)
    assert (tmp_path / "here.html").read_bytes() == (tmp_path / "there.html").read_bytes()
