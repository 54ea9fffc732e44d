"""Sentences about methods that choose questions: "dragin wrong and flare right".

Questions that were chosen by how a method answered them say nothing on how good it is: among those that it got wrong
it has no exact match, whatever it is compared with. A ``Selection`` says which methods that concerns.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import shown
from dragin_lab.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd


#: What can be said of a method on a question, beside the causes.
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
        """This one narrowed down."""
        return Selection((*self.words, words), self.methods.union(methods))

    def remarks(self, tested: Iterable[str]) -> list[str]:
        """What is said below a table of the questions, where the ``tested`` methods would be compared."""
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


def names_in(expression: str) -> set[str]:
    """The names that an expression over columns uses."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(expression.replace("`", " ")).readline))
    except (tokenize.TokenError, SyntaxError):  # pandas has read it, so it is one that Python would not
        return set(re.findall(r"\w+", expression))
    return {token.string for token in tokens if token.type == tokenize.NAME}


def flags_of(frame: pd.DataFrame, name: str, word: str) -> pd.Series:
    """For each question of ``Runs.questions`` whether a method's answer is so: an outcome, or a cause."""
    own = frame[frame["method"] == name].set_index(["dataset", "qid"])
    failed = own["ended"] == "error"
    said = {
        "right": own["right"], "wrong": ~own["right"], "unreadable": ~own["readable"], "failed": failed,
        "answered": ~failed, "retrieved": own["retrievals"] > 0,
    }  # fmt: skip
    return said[word] if word in said else own["cause"] == word


def sentence(
    text: str, names: Sequence[str], words: Sequence[str], flags: Callable[[str, str], pd.Series]
) -> set[Any] | None:
    """The questions for which a sentence is true; None for a text that is not one.

    It says a word of a name ("dragin wrong", "flare was right"), joined by and, or, not and brackets. ``flags`` gives
    for a name and a word a boolean series over the questions; one that it does not have counts as false.
    """
    wanted: dict[str, Any] = {}

    def column(match: re.Match[str]) -> str:
        name = f"c{len(wanted)}"
        wanted[name] = flags(match[1], match[2])
        return name

    of_name, of_word = ("|".join(map(re.escape, sorted(every, key=len, reverse=True))) for every in (names, words))
    said = re.sub(rf"({of_name})\s+(?:is\s+|was\s+)?({of_word})(?!\w)", column, text)
    if not wanted or re.sub(r"\b(c\d+|and|or|not)\b|[()\s]", "", said):
        return None
    import pandas as pd

    frame = pd.DataFrame({name: flag.astype("boolean") for name, flag in wanted.items()}).fillna(False).astype(bool)
    try:
        return set(frame.query(said).index)
    except (SyntaxError, ValueError, TypeError, NotImplementedError, RecursionError, MemoryError) as error:
        why = str(error) or type(error).__name__
        raise SettingError(f"{shown(text)} cannot be read ({why}); write 'dragin wrong and flare right'") from None
