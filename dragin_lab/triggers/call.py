"""Calls: the model itself asks. What opens and closes a call, what is put in, whether it stays."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dragin_lab.checks import check_text
from dragin_lab.core.answers import CALL_CLOSES, CALL_OPENS, FOLLOW_UP, INTERMEDIATE, thoughts
from dragin_lab.core.episode import Bias
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.errors import SettingError
from dragin_lab.triggers.call_loop import PASSAGES, CallLoop


@TRIGGERS.add
@dataclass(frozen=True)
class Call(Trigger):
    """The model asks between two marks, and goes on with what was found.

    ``opens`` and ``closes`` are the marks, as the model writes them. ``puts_in`` is what is written
    after a call, with ``{passages}`` where the numbered passages stand; None puts them into the
    prompt instead. ``stays`` says whether the call remains in the answer. ``puts_before`` is
    written before what a turn that asks wrote. Without ``in_thoughts`` a call between ``<think>``
    and ``</think>`` does not count.
    """

    name = "call"
    source = "FLARE Prompts D.2, D.3; Search-R1"
    loop = CallLoop
    # for people
    asking = "calls for a search of"
    not_asking = "asks for no search"
    length = 96
    serves = frozenset({"text", "call"})
    opens: str = ""
    closes: str = ""
    puts_in: str | None = None
    stays: bool = True
    puts_before: str = ""
    in_thoughts: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for label, mark in (("opens", self.opens), ("closes", self.closes)):
            if not isinstance(mark, str) or not mark.strip():
                raise SettingError(
                    f"{label}={mark!r} of a call marks nothing; give what the model writes:"
                    " '<search>'"
                )
        if self.puts_in is not None and PASSAGES not in check_text("puts_in", self.puts_in):
            raise SettingError(
                f"puts_in={self.puts_in!r} has no {PASSAGES}; write it where the passages shall"
                " stand"
            )

    @property
    def marks(self) -> tuple[str, str]:
        """What opens and what closes a call."""
        return self.opens, self.closes

    @property
    def pattern(self) -> re.Pattern[str]:
        """A complete call; its first group is what it asks for."""
        opens, closes = self.marks
        return re.compile(f"{re.escape(opens)}(.*?){re.escape(closes)}", re.DOTALL)

    def bias(self, asked_before: bool) -> tuple[Bias, ...]:
        """What is added to the logits of the tokens that open a call; ``asked_before``: right
        after a search.
        """
        return ()

    def find(self, text: str, before: str = "") -> re.Match[str] | None:
        """The first complete call in a text; a thought that it continues may begin in what
        stands ``before`` it.
        """
        hidden = [] if self.in_thoughts else thoughts(before + text)
        for call in self.pattern.finditer(text):
            place = len(before) + call.start()
            if not any(start <= place < stop for start, stop in hidden):
                return call
        return None

    def broken_off(self, text: str) -> int | None:
        """The character where a call begins that is never closed and would not stay; None where
        there is none.
        """
        opens, closes = self.marks
        start = text.rfind(opens)
        return start if not self.stays and start >= 0 and closes not in text[start:] else None


@TRIGGERS.add
@dataclass(frozen=True)
class SearchCall(Call):
    """``[Search(term)]`` (FLARE-instruct). The call is taken out, and the passages go into the
    prompt.
    """

    name = "search-call"
    source = "FLARE Prompt D.3"
    form = "search"
    opens: str = CALL_OPENS
    closes: str = CALL_CLOSES
    stays: bool = False
    #: The FLARE paper's bonus on the logit of the token that opens a call, and for how many tokens
    #: after a search the call is forbidden, so that it is not written twice: our choice, as the
    #: paper names no number.
    call_bonus: float = setting(2.0, label="bonus on the logit that opens a call")
    call_pause: int = setting(5, label="tokens without a call after a search", unit="tokens")

    def bias(self, asked_before: bool) -> tuple[Bias, ...]:
        pause = self.call_pause if asked_before else 0
        forbidden = (Bias(self.opens, float("-inf"), 0, pause),) if pause else ()
        return (*forbidden, Bias(self.opens, self.call_bonus, pause))


@TRIGGERS.add
@dataclass(frozen=True)
class FollowUp(Call):
    """``Follow up:`` (self-ask). The question stays, and the model writes the intermediate
    answer after it.
    """

    name = "follow-up"
    source = "FLARE Prompt D.2"
    form = "self-ask"
    length = 192
    asking = "asks the follow-up question"
    not_asking = "asks no further question"
    opens: str = FOLLOW_UP
    closes: str = INTERMEDIATE

    @property
    def pattern(self) -> re.Pattern[str]:
        """A question on the line of ``Follow up:``, once ``Intermediate answer:`` has begun the
        next line.
        """
        return re.compile(rf"{re.escape(self.opens)}([^\n]*)\n\s*{re.escape(self.closes)}")


@TRIGGERS.add
@dataclass(frozen=True)
class SearchTag(Call):
    """``<search>term</search>`` (Search-R1). The passages stand after it, and the model goes on
    thinking.
    """

    name = "search-tag"
    source = "Search-R1, infer.py"
    form = "search-r1"
    length = 1024
    opens: str = "<search>"
    closes: str = "</search>"
    puts_in: str | None = "<information>{passages}</information>\n\n"
    puts_before: str = "\n\n"
