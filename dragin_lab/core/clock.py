"""The clock: triggers that do not read the draft (DRAGIN Table 1)."""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger


@dataclass(frozen=True)
class Clock(Trigger):
    """A trigger that does not read the draft."""

    loop = "clock"
    searches = "always"  # "never", "once", or "always": before each turn
    sentences = False  # whether a turn writes one sentence
    reason = ""

    @classmethod
    def serves(cls) -> frozenset[str]:
        return frozenset({"text"} if cls.searches == "always" else {"nothing"})

    @property
    def tokens(self) -> int | None:
        """How many tokens a turn writes; None: to the end of its sentence or of the answer."""
        return None

    @property
    def retrieves(self) -> bool:
        return self.searches != "never"


@TRIGGERS.add
@dataclass(frozen=True)
class Never(Clock):
    """No retrieval (wo-RAG)."""

    name, source, searches, reason = "never", "DRAGIN Table 1", "never", "this method never retrieves"


@TRIGGERS.add
@dataclass(frozen=True)
class Once(Clock):
    """Once, before anything is written (SR-RAG)."""

    name, source, searches, reason = "once", "DRAGIN Table 1", "once", "once, before anything is written"


@TRIGGERS.add
@dataclass(frozen=True)
class EveryN(Clock):
    """Every n tokens, and at the start (FL-RAG)."""

    name, source = "every-n", "DRAGIN Table 1"
    n: int = setting(16, label="tokens between searches", unit="tokens")

    @property
    def tokens(self) -> int:
        return self.n

    @property
    def reason(self) -> str:  # type: ignore[override]
        return f"every {self.n} tokens"


@TRIGGERS.add
@dataclass(frozen=True)
class EverySentence(Clock):
    """Every sentence, and at the start (FS-RAG)."""

    name, source, sentences, reason = "every-sentence", "DRAGIN Table 1", True, "every sentence"
