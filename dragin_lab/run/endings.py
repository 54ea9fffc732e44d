"""What is kept of an episode that has ended, and what stands in a model's place where episodes run somewhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from dragin_lab.run.rundir import Line

if TYPE_CHECKING:
    from dragin_lab.core.method import Method
    from dragin_lab.core.prompts import PromptTemplate
    from dragin_lab.core.trace import Question, Trace


class Finished(NamedTuple):
    """What is kept of an episode: the lines of a run directory, and its trace where that is wanted."""

    line: Line
    timing: Line
    trace: Trace | None


@runtime_checkable
class Elsewhere(Protocol):
    """Answers questions somewhere else (``cluster.Cluster``)."""

    @property
    def embedded(self) -> bool:
        """Whether its model is the one that the package brings."""

    def provenance(self) -> dict[str, Any]:
        """As ``LanguageModel.provenance``."""

    def finish(
        self, method: Method, retriever: Any, questions: Iterable[Question], prompt: PromptTemplate,
        options: dict[str, Any],
    ) -> Iterator[Finished]:  # fmt: skip
        """What is kept of each episode as it ends; ``options`` are those of ``bench.finished``."""
