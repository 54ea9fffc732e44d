"""Retrieval by the clock, or not at all: wo-RAG, SR-RAG, FL-RAG and FS-RAG (DRAGIN Table 1)."""

from __future__ import annotations

from dataclasses import dataclass

from dragin_lab.core.episode import Episode
from dragin_lab.core.loop import Loop
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.trace.trace import Decision


@dataclass
class ClockLoop(Loop):
    """Search by the clock, or not at all, then write: a sentence, some tokens, or the whole
    answer.
    """

    judges = False

    @property
    def writes_on(self) -> bool:  # type: ignore[override]
        return self.trigger.searches == "always"

    def run(self) -> Episode[None]:
        clock = self.trigger
        last = None
        while not self.ended:
            if not clock.retrieves:
                self.new_step().decision = Decision(False, clock.reason)
            elif last is None:
                yield from self.search(self.first_query(), clock.reason)
            else:
                span = (0, self.trace.steps[-1].continuation_kept or 0)
                tokens = clock.tokens
                yield from self.search(
                    self.gap(last, span, answer=self.text, chunk_tokens=tokens), clock.reason
                )
            last = yield from self.write(
                self.sentence_end if clock.sentences else None, clock.tokens
            )
            if clock.sentences:
                self.keep_sentence(last)
            else:
                self.keep(last)


@dataclass(frozen=True)
class Clock(Trigger):
    """A trigger that does not read the draft."""

    loop = ClockLoop
    searches = "always"  # "never", "once", or "always": before each turn
    sentences = False  # whether a turn writes one sentence
    reason = ""

    @property
    def tokens(self) -> int | None:
        """How many tokens a turn writes; None: to the end of its sentence or of the answer."""
        return None


@TRIGGERS.add
@dataclass(frozen=True)
class Never(Clock):
    """No retrieval (wo-RAG)."""

    name = "never"
    source = "DRAGIN Table 1"
    searches = "never"
    retrieves = False
    serves = frozenset({"nothing"})
    reason = "this method never retrieves"


@TRIGGERS.add
@dataclass(frozen=True)
class Once(Clock):
    """Once, before anything is written (SR-RAG)."""

    name = "once"
    source = "DRAGIN Table 1"
    searches = "once"
    serves = frozenset({"nothing"})
    reason = "once, before anything is written"


@TRIGGERS.add
@dataclass(frozen=True)
class EveryN(Clock):
    """Every n tokens, and at the start (FL-RAG)."""

    name = "every-n"
    source = "DRAGIN Table 1"
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

    name = "every-sentence"
    source = "DRAGIN Table 1"
    sentences = True
    reason = "every sentence"
