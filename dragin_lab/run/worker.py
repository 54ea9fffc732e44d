"""A worker of a cluster: it opens a lab by a recipe, says what it has loaded, and answers. It needs no Ray."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from dragin_lab import __version__
from dragin_lab.core.method import Method
from dragin_lab.errors import DraginLabError
from dragin_lab.files import as_path
from dragin_lab.run.benchmark import record_episodes
from dragin_lab.run.lab import Lab
from dragin_lab.run.runwriter import Finished
from dragin_lab.run.serving import describe_error, describe_model, describe_retriever, render_chat
from dragin_lab.text import without_secrets
from dragin_lab.trace.trace import Question


class ClusterError(DraginLabError):
    """A cluster that cannot be reached, or whose workers are not what they should be."""


@dataclass(frozen=True, repr=False)
class Recipe:
    """How every worker makes its model and its retriever.

    The fields are arguments of ``Lab``; ``searches`` False opens no passages. A path is looked up on the worker's
    machine. A subclass may open another lab, if workers can import it.
    """

    model: str | None = None
    dtype: str | None = None
    device: str | None = None
    layer: int | str = "last"
    heads: tuple[int, ...] | None = None
    sample: bool = False
    retriever: str | None = None
    corpus: str | None = None
    searches: bool = True
    fields: str | None = None
    engine: str | None = None
    tokenizer: str | None = None

    def __repr__(self) -> str:
        values = [(key.name, getattr(self, key.name)) for key in fields(self)]
        shown = [f"{name}={(without_secrets(of) if isinstance(of, str) else of)!r}" for name, of in values]
        return f"{type(self).__name__}({', '.join(shown)})"

    def open(self) -> Lab:
        """A lab of them, which opens each when it is first needed."""
        return Lab(**{key.name: getattr(self, key.name) for key in fields(Recipe) if key.name != "searches"})

    def absolute(self) -> Recipe:
        """The same with absolute paths where a relative one exists here: a worker has another working folder."""
        names = ("model", "corpus", "tokenizer")
        paths = {key: as_path(name) for key in names if (name := getattr(self, key)) is not None}
        absolute: dict[str, Any] = {key: str(path.absolute()) for key, path in paths.items() if path.exists()}
        return replace(self, **absolute)


class Identity(NamedTuple):
    """What a worker has loaded: all of it that ``run.json`` records, and how it is shown to people."""

    worker: str
    recorded: dict[str, Any]  # library, model, retriever; the same for all workers
    embedded: bool
    shown: tuple[str, str]  # model, retriever
    chat: str = ""  # ``render_chat``


class Worker:
    """A model and a retriever, and who answers with them; ``threads`` of torch on a CPU."""

    def __init__(self, recipe: Recipe, threads: int = 1) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is loaded, so that all workers sum alike
        self.recipe = recipe

    def load(self) -> Identity:
        """Load the model and the retriever. Raises ``ClusterError``, which names this worker."""
        worker = f"the worker on {socket.gethostname()}, process {os.getpid()}"
        try:
            self.lab = self.recipe.open()
            lm, retriever = self.lab.model, self.lab.retriever if self.recipe.searches else None
        except Exception as error:
            raise ClusterError(f"{worker}: {describe_error(error)}") from error
        model = describe_model(lm) | {package: version(package) for package in ("numpy", "spacy")}
        recorded = {"library": describe_library(), "model": model, "retriever": describe_retriever(retriever)}
        return Identity(worker, recorded, lm.embedded, (repr(lm), repr(retriever)), render_chat(lm))

    def answer(
        self, questions: Sequence[Question], method: Method, asking: dict[str, Any], options: dict[str, Any]
    ) -> Iterator[Finished]:
        """``benchmark.record_episodes`` over these questions, by its lab with the arguments ``asking``."""
        yield from record_episodes(self.lab.replace(**asking), method, questions, **options)


@cache
def describe_library() -> dict[str, str]:
    """The version of this package, and the SHA-256 (hex) of its source, which an unreleased change has too."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return {"version": __version__, "source": digest.hexdigest()}
