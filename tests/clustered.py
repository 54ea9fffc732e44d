"""Scripted workers for a cluster, some of which die; as a program, a run on a cluster that is to
be killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from answering import DRAGIN, AnsweringModel, questions, recorded
from scripted import ScriptedRetriever

from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import OnToken
from dragin_lab.lab import Lab
from dragin_lab.run.cluster import Cluster, Recipe
from dragin_lab.run.rundir import RunRecord
from dragin_lab.run.setup import Setup
from dragin_lab.trace.trace import Draft


class DyingModel(AnsweringModel):
    """Ends its process at some questions: each time, or once, which the file ``once`` remembers."""

    def __init__(self, deadly: tuple[int, ...], once: str, seconds: float) -> None:
        super().__init__(seconds=seconds)
        self.deadly, self.once = deadly, once

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        if any(f"thing {number}?" in request.prompt.text for number in self.deadly) and _first(
            self.once
        ):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(request, seed, watch=watch)


class ScriptedRecipe(Recipe):
    """A scripted model. ``names`` is a file by which the first worker's has another name than the
    others'.

    ``loads`` False ends each of them.
    """

    def __init__(
        self,
        *,
        device: str | None = "cpu",
        searches: bool = True,
        seconds: float = 0.0,
        deadly: tuple[int, ...] = (),
        once: str = "",
        names: str = "",
        loads: bool = True,
    ) -> None:
        super().__init__(device=device, searches=searches)
        self.seconds, self.deadly, self.once = seconds, deadly, once
        self.names, self.loads = names, loads

    def open(self) -> Setup:
        if not self.loads:
            os.kill(os.getpid(), signal.SIGKILL)
        lm = DyingModel(self.deadly, self.once, self.seconds)
        if self.names and not _first(self.names):
            lm.name = "another"
        return Setup(lm, ScriptedRetriever() if self.searches else None)


def _first(path: str) -> bool:
    """Whether nobody has asked this before of a file; always where there is none."""
    if not path:
        return True
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def answer_on(cluster: Cluster, folder: Path, count: int, **options: Any) -> RunRecord:
    """DRAGIN over so many questions, as ``answering.answer``."""
    seed = options.pop("seed", 0)
    return recorded(Lab(cluster, seed=seed), questions(count), DRAGIN, folder, **options)


if __name__ == "__main__":
    address, folder, count, seconds = sys.argv[1:]
    with Cluster(address, ScriptedRecipe(seconds=float(seconds)), actors=1) as cluster:
        answer_on(cluster, Path(folder), int(count))
