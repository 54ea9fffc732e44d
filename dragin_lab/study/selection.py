"""Choosing questions of runs: by a sentence about methods ("dragin wrong and flare right"), an expression, or a mask.

Questions that were chosen by how a method answered them do not measure it: among those that it got wrong
it has no exact match, whatever it is compared with. A ``Selection`` records which methods that concerns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import shown
from dragin_lab.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd


#: Valid predicates of a method on a question, beside the causes.
OUTCOMES = ("right", "wrong", "unreadable", "failed", "retrieved", "answered")
#: Those of them that depend on what a comparison tests, and the columns of ``Runs.questions`` that do.
OF_ANSWERS = ("right", "wrong", "unreadable")
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
        elif "a mask" in self.words:
            lines.append("a test holds only if the mask does not depend on what the methods answered")
        return lines


def find_names(expression: str) -> set[str]:
    """The names that an expression over columns uses."""
    try:
        nodes = ast.walk(ast.parse(expression.strip(), mode="eval"))
    except SyntaxError:  # pandas accepts names between backticks
        return set(re.findall(r"\w+", expression))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def flag_questions(frame: pd.DataFrame, name: str, word: str) -> pd.Series:
    """For each question of ``Runs.questions`` whether an outcome or a cause holds for a method's answer."""
    own = frame[frame["method"] == name].set_index(["dataset", "qid"])
    failed = own["ended"] == "error"
    outcomes = {
        "right": own["right"], "wrong": ~own["right"], "unreadable": ~own["readable"], "failed": failed,
        "answered": ~failed, "retrieved": own["retrievals"] > 0,
    }  # fmt: skip
    return outcomes[word] if word in outcomes else own["cause"] == word


def read_sentence(
    text: str, names: Sequence[str], words: Sequence[str], flags: Callable[[str, str], pd.Series]
) -> set[Any] | None:
    """The questions for which a sentence is true; None for a text that is not one.

    It pairs names with words ("dragin wrong", "flare was right"), joined by and, or, not and brackets. ``flags`` gives
    for a name and a word a boolean series over the questions; one that it does not have counts as false.

    Raises ``SettingError`` for a sentence that cannot be read.
    """
    columns: dict[str, Any] = {}

    def name_column(match: re.Match[str]) -> str:
        column = f"c{len(columns)}"
        columns[column] = flags(match[1], match[2])
        return column

    of_name, of_word = ("|".join(map(re.escape, sorted(every, key=len, reverse=True))) for every in (names, words))
    expression = re.sub(rf"({of_name})\s+(?:is\s+|was\s+)?({of_word})(?!\w)", name_column, text)
    if not columns or re.sub(r"\b(c\d+|and|or|not)\b|[()\s]", "", expression):
        return None
    import pandas as pd

    frame = pd.DataFrame({name: flag.astype("boolean") for name, flag in columns.items()}).fillna(False).astype(bool)
    try:
        return set(frame.query(expression).index)
    except (SyntaxError, ValueError, TypeError, NotImplementedError, RecursionError, MemoryError) as error:
        why = str(error) or type(error).__name__
        raise SettingError(f"{shown(text)} cannot be read ({why}); write 'dragin wrong and flare right'") from None
