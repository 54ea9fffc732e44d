"""Choosing questions of runs by an expression over their table ("em < 1 and retrievals > 2").

Questions that were chosen by how a method answered them do not measure it: among those that it got wrong
it has no exact match, whatever it is compared with. A ``Selection`` records which methods that concerns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

#: The columns of ``Runs.questions`` that depend on what a comparison tests.
ANSWER_COLUMNS = ("right", "em", "f1", "answer", "readable", "cause", "why")


@dataclass(frozen=True)
class Selection:
    """How questions were chosen: in words, and by the answers of which ``methods``."""

    words: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()

    def and_by(self, words: str, methods: Iterable[str]) -> Selection:
        """The selection, narrowed down further."""
        return Selection((*self.words, words), self.methods.union(methods))

    def remarks(self, tested: Iterable[str]) -> list[str]:
        """The lines below a table of the questions, where the ``tested`` methods would be compared."""
        if not self.words:
            return []
        lines = [f"only questions chosen by: {'; '.join(self.words)}"]
        if own := sorted(self.methods & set(tested)):
            lines.append(
                f"no test: what {' and '.join(own)} answered chose the questions, so a difference here says how they "
                "were chosen, not which method is better; test on all questions, or on those of a type"
            )
        return lines


def find_names(expression: str) -> set[str]:
    """The names that an expression over columns uses."""
    try:
        nodes = ast.walk(ast.parse(expression.strip(), mode="eval"))
    except SyntaxError:  # pandas accepts names between backticks
        return set(re.findall(r"\w+", expression))
    return {node.id for node in nodes if isinstance(node, ast.Name)}
