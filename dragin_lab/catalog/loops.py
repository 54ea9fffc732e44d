"""Which loop an episode runs, and what no loop can forget."""

from __future__ import annotations

from dataclasses import replace

from dragin_lab.core.episode import Episode, Tokenizer
from dragin_lab.core.loop import ClockLoop, DraginLoop, FlareLoop, SentenceLoop
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.steps import Loop
from dragin_lab.reference.dragin import ReferenceLoop
from dragin_lab.reference.rules import ReferenceMethod
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.call_loop import CallLoop
from dragin_lab.triggers.prefix import PrefixLoop

#: By ``Trigger.loop``; a trigger that looks ahead does so by its unit.
LOOPS: dict[str, type[Loop]] = {
    "look-ahead": DraginLoop, "flare": FlareLoop, "clock": ClockLoop, "prefix": PrefixLoop, "call": CallLoop,
}  # fmt: skip


def find_loop(method: Method) -> type[Loop]:
    """The loop of a method."""
    if isinstance(method, ReferenceMethod):
        return ReferenceLoop
    if method.trigger.loop == "look-ahead" and method.trigger.unit == "sentence":
        return SentenceLoop
    return LOOPS[method.trigger.loop]


def start_episode(
    method: Method, trace: Trace, template: PromptTemplate, tokenizer: Tokenizer, *, window: int | None = None
) -> Episode[None]:
    """The generator that answers ``trace.question`` and records itself in ``trace`` as it goes.

    ``window`` is the model's context length in tokens; None where it has no limit. Raises ``SettingError`` for a
    template in the chat layout where the tokenizer has no chat template.
    """
    bound = replace(template, form=method.form).bound(tokenizer)
    return run_loop(find_loop(method)(method, trace, bound, tokenizer, window))


def run_loop(loop: Loop) -> Episode[None]:
    """A loop's turns, and after them how it ended and the answer."""
    yield from loop.run()
    if loop.trace.ended == "running":
        loop.trace.ended = "stalled"
        loop.trace.notes.append(f"{type(loop).__name__} did not say how the episode ended")
    yield from loop.finish()
