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
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.trace import Question
from dragin_lab.run.batch import finished
from dragin_lab.run.endings import Finished

if TYPE_CHECKING:
    from dragin_lab.core.episode import Retriever
    from dragin_lab.model.load import LanguageModel


@dataclass(frozen=True)
class Recipe:
    """How every worker makes its model and its retriever.

    The fields are the arguments of ``LanguageModel.load`` and of ``open_retriever``; ``searches`` False opens no
    passages. A path is looked for on the worker's machine. A subclass may make others, if workers can import it.
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

    def whole_paths(self) -> Recipe:
        """The same with whole paths where a relative one exists here: a worker stands in another folder."""
        return replace(self, model=_whole(self.model), corpus=_whole(self.corpus))


@dataclass(frozen=True)
class Identity:
    """What a worker has loaded: everything of it that ``run.json`` records, and how it shows itself to people."""

    model: dict[str, Any]
    retriever: dict[str, Any] | None
    embedded: bool
    shown: tuple[str, ...]


class Worker:
    """A model and a retriever, and who answers with them; ``threads`` of torch on a CPU."""

    def __init__(self, recipe: Recipe, threads: int = 1) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is loaded, so that all workers sum alike
        self._recipe = recipe
        self._lm: LanguageModel | None = None
        self._retriever: Retriever | None = None

    def hello(self) -> dict[str, str]:
        """Who this is, at once and with nothing loaded: where it runs, and of which library."""
        return {"name": f"{socket.gethostname()}, process {os.getpid()}"} | library()

    def load(self) -> Identity:
        """Load the model and the retriever, and say what they are."""
        self._lm = lm = self._recipe.open_model()
        model = lm.provenance() | {name: version(name) for name in ("numpy", "spacy")}
        shown, found = [repr(lm)], None
        if self._recipe.searches:
            self._retriever = retriever = self._recipe.open_retriever()
            describe = getattr(retriever, "provenance", None)
            found = describe() if describe else {"kind": type(retriever).__name__}
            shown.append(repr(retriever))
        return Identity(model, found, lm.embedded, tuple(shown))

    def answer(
        self, method: Method, questions: Sequence[Question], prompt: PromptTemplate, options: dict[str, Any]
    ) -> Iterator[Finished]:
        """``bench.finished`` over these questions: each as its episode ends."""
        assert self._lm is not None
        yield from finished(method, self._lm, self._retriever, questions, prompt, **options)


@cache
def library() -> dict[str, str]:
    """The version of this package and the SHA-256 (hex) of its source, which an unreleased change has too."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return {"version": __version__, "source": digest.hexdigest()}


def _whole(name: str | None) -> str | None:
    path = None if name is None else Path(name).expanduser()
    return str(path.absolute()) if path is not None and path.exists() else name
