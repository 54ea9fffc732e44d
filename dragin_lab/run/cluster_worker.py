"""What a worker of a cluster does: it makes a model and a retriever by a recipe, once, and answers questions with them.

Nothing here knows of Ray: ``cluster`` makes actors of ``Worker``. What a worker needs reaches it as data.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab import __version__
from dragin_lab.core.method import Method
from dragin_lab.core.trace import Question
from dragin_lab.errors import DraginLabError
from dragin_lab.run.benchmark import Asking, finished
from dragin_lab.run.lab import Lab
from dragin_lab.run.lines import Finished
from dragin_lab.run.serving import described, what_happened

if TYPE_CHECKING:
    from dragin_lab.core.episode import Retriever
    from dragin_lab.model.load import LanguageModel


class ClusterError(DraginLabError):
    """A cluster that cannot be reached, or whose workers are not what they should be."""


@dataclass(frozen=True)
class Recipe:
    """How every worker makes its model and its retriever.

    The fields are the arguments of ``LanguageModel.load`` and of ``open_retriever``; ``searches`` False opens no
    passages. A path is looked up on the worker's machine. A subclass may make others, if workers can import it.
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

    def open_model(self) -> LanguageModel:
        """The model; errors as ``LanguageModel.load``."""
        from dragin_lab.model.load import LanguageModel

        return LanguageModel.load(
            self.model, dtype=self.dtype, device=self.device, layer=self.layer, heads=self.heads, sample=self.sample
        )

    def open_retriever(self) -> Retriever:
        """The retriever; errors as ``open_retriever``."""
        from dragin_lab.retrieval.choose import open_retriever

        return open_retriever(self.retriever, self.corpus)

    def absolute(self) -> Recipe:
        """The same with absolute paths where a relative one exists here: a worker has another working folder."""
        return replace(self, model=_absolute(self.model), corpus=_absolute(self.corpus))


@dataclass(frozen=True)
class Identity:
    """What a worker has loaded: everything of it that ``run.json`` records, and how it shows itself to people."""

    name: str
    model: dict[str, Any]
    retriever: dict[str, Any] | None
    embedded: bool
    shown: tuple[str, ...]


class Worker:
    """A model and a retriever, and who answers with them; ``threads`` of torch on a CPU. Knows nothing of Ray."""

    def __init__(self, recipe: Recipe, threads: int = 1) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is loaded, so that all workers sum alike
        self._recipe = recipe
        self._lab: Lab | None = None

    def begin(self) -> None:
        """Nothing: what is asked first is answered once the worker is there, before it loads."""

    def load(self, wanted: dict[str, str]) -> Identity:
        """Load the model and the retriever, and say what they are.

        Raises ``ClusterError`` that names this process, for another ``library`` and for what cannot be loaded.
        """
        name, there = f"{socket.gethostname()}, process {os.getpid()}", library()
        try:
            if there != wanted:
                raise ClusterError(
                    f"has another dragin_lab: version {there['version']}, source {there['source'][:12]}; the process "
                    f"that writes has {wanted['version']}, {wanted['source'][:12]}. Install the same on both"
                )
            lm = self._recipe.open_model()
            retriever = self._recipe.open_retriever() if self._recipe.searches else None
            self._lab = Lab(lm, retriever=retriever)
        except Exception as error:
            raise ClusterError(f"the worker on {name}: {what_happened(error)}") from error
        model = lm.provenance() | {package: version(package) for package in ("numpy", "spacy")}
        retriever = None if retriever is None else self._lab.retriever
        shown = (repr(lm),) if retriever is None else (repr(lm), repr(retriever))
        return Identity(name, model, described(retriever), lm.embedded, shown)

    def answer(
        self, questions: Sequence[Question], method: Method, asked_with: Asking, options: dict[str, Any]
    ) -> Iterator[Finished]:
        """``finished`` over these questions: each as its episode ends."""
        assert self._lab is not None
        yield from finished(self._lab.replace(**asked_with._asdict()), method, questions, **options)


@cache
def library() -> dict[str, str]:
    """The version of this package and the SHA-256 (hex) of its source, which an unreleased change has too."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return {"version": __version__, "source": digest.hexdigest()}


def _absolute(name: str | None) -> str | None:
    path = None if name is None else Path(name).expanduser()
    return str(path.absolute()) if path is not None and path.exists() else name
