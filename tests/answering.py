"""A scripted model that knows what to say to each question, for runs of many; as a program, one
to be killed.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from scripted import Say, ScriptedModel, ScriptedRetriever

from dragin_lab.catalog.by_name import method
from dragin_lab.core.episode import Write
from dragin_lab.core.method import Method
from dragin_lab.data.datasets import load_questions
from dragin_lab.engines import engine
from dragin_lab.engines.engine import OnToken, stream_draft
from dragin_lab.lab import Lab
from dragin_lab.run.benchmark import as_benchmark, open_run
from dragin_lab.run.rundir import RunRecord, read_run
from dragin_lab.trace.trace import Draft, Question


def demo_questions() -> list[Question]:
    """Forty of Almanac's development questions; about half are on what the model never saw."""
    return load_questions("almanac/2wikimultihopqa", 40, split="dev")


class Batch(engine.Batch):
    """One token of every draft per step."""

    def __init__(self, lm: Any, size: int) -> None:
        super().__init__(lm)
        self.asked = self.size = size
        self.rows: list[tuple[Any, Generator[Any, None, Draft]]] = []
        self.widths: list[int] = []
        self.seeds: list[int | None] = []
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self.rows)

    def step(self) -> list[tuple[Any, Any]]:
        while self._waiting and len(self.rows) < self.size:
            key, draft, seed = self._waiting.pop(0)
            self.seeds.append(seed)
            self.rows.append((key, stream_draft(self.engine, draft, seed)))
        if self.rows:
            self.widths.append(len(self.rows))
        ended, rows = [], self.rows
        self.rows = []
        for key, tokens in rows:
            try:
                next(tokens)
                self.rows.append((key, tokens))
            except StopIteration as stop:
                ended.append((key, stop.value))
            except Exception as error:  # noqa: BLE001 - as the real one does
                ended.append((key, error))
        return ended

    def close(self) -> None:
        self.closed = True


#: Fires on "Bo" where θ is below 4.5.
DRAGIN = method("dragin", variant="paper", what="question", threshold=1.0)


#: Drafts side by side are written in threads, and share the script.
ONE = threading.Lock()


class AnsweringModel(ScriptedModel):
    """Answers "Who made thing 3?" with Li3; with no passages in view it doubts the name Bo first.

    Raises what ``failing`` holds for a number, and takes ``seconds`` for a draft.
    """

    def __init__(
        self, failing: dict[int, BaseException] | None = None, seconds: float = 0.0
    ) -> None:
        super().__init__(())
        self.failing = failing or {}
        self.seconds = seconds
        self.asked: list[int] = []

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        number = int(request.prompt.part("question").removesuffix("?").rpartition(" ")[2])
        if number not in self.asked[-1:]:
            self.asked.append(number)
        time.sleep(self.seconds)
        said = f" Li. So the answer is Li {number}."
        if not request.prompt.part("passages"):
            said = f" It is Bo Ek. So the answer is Bo {number}."
        with ONE:
            self.script = [
                self.failing.get(number) or Say(said, entropy={"Bo": 9.0}, received={"Bo": 0.5})
            ]
            return super().write(request, seed, watch=watch)

    def batch(self, size: int) -> Any:
        return Batch(self, size)


@functools.cache
def embedded() -> Lab:
    """The embedded model, opened once in a process, with its passages."""
    lab = Lab()
    assert lab.model is not None  # so that labs with other parts share it
    return lab


def questions(count: int, golds: Iterable[str] = ("Li {}",)) -> list[Question]:
    """Questions with ids q1, q2 and so on."""
    return [
        Question(f"q{i}", f"Who made thing {i}?", tuple(gold.format(i) for gold in golds))
        for i in range(1, count + 1)
    ]


def answer(
    folder: Path, count: int, lm: AnsweringModel | None = None, how: Method = DRAGIN, **options: Any
) -> AnsweringModel:
    """Run a method over so many questions; the model that was asked."""
    lm = lm or AnsweringModel()
    asking = {key: options.pop(key) for key in ("seed", "cache", "exemplars") if key in options}
    recorded(
        Lab(lm, retriever=ScriptedRetriever(), **asking), questions(count), how, folder, **options
    )
    return lm


def recorded(
    lab: Lab,
    asked: Any,
    how: Method,
    folder: Path,
    *,
    limit: int | None = None,
    title: str = "",
    **options: Any,
) -> RunRecord:
    """Run a method over questions, in this very folder; ``options`` are those of ``open_run``."""
    with open_run(
        lab.setup(how), how, as_benchmark(asked, limit), folder, title=title, **options
    ) as go_on:
        go_on(None)
    return read_run(folder)


if __name__ == "__main__":
    answer(Path(sys.argv[1]), int(sys.argv[2]), AnsweringModel(seconds=float(sys.argv[3])))
