"""Which loop a method runs, and the shortest one."""

from __future__ import annotations

from dataclasses import replace

from dragin_lab.core.episode import Episode, Tokenizer
from dragin_lab.core.loop import Loop
from dragin_lab.core.method import Method
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.reference.dragin import ReferenceLoop
from dragin_lab.reference.etc import EtcLoop
from dragin_lab.trace.trace import Trace
from dragin_lab.triggers.call_loop import CallLoop
from dragin_lab.triggers.later import Prefix


class GateLoop(PaperLoop):
    """One decision before the answer, on its first tokens (TARG, arXiv 2511.09803), in both variants.

    Above θ the tokens are thrown away, and the answer is written with passages; else the model goes on after them.
    """

    def run(self) -> Episode[None]:
        when, step = self.method.trigger, self.new_step()
        assert isinstance(when, Prefix)
        made = yield from self._draft(step, None, when.first)
        assert step.prompt is not None
        step.words, step.decision, place = self.judge(made, step.prompt, False)
        if place is None:
            step.decision.certain = True  # no longer draft would be looked at
            self._keep(step, made, len(made.text), ended=made.closed)
        else:
            step.discarded = made.text
            yield from self._fetch(step, (yield from self.method.formulator.formulate(place)))
        while self.trace.ended == "running":
            turn = self.new_step() if place is None else step
            made = yield from self._continue(turn, None)
            self._keep(turn, made, len(made.text))


#: The loops of released codes, by whose they are (``Trigger.code``).
RELEASED: dict[str, type[Loop]] = {"dragin": ReferenceLoop, "etc": EtcLoop}


def episode(
    method: Method, trace: Trace, template: PromptTemplate, tokenizer: Tokenizer, *, window: int | None = None
) -> Episode[None]:
    """The generator that answers ``trace.question`` and records itself in ``trace`` as it goes.

    ``window`` is the model's context length in tokens; None where it has no limit. Raises ``SettingError`` for a
    template in the chat layout where the tokenizer has no chat template.
    """
    written = replace(template, form=method.trigger.form).bound(tokenizer)
    if method.trigger.looks == "call":
        loop: type[Loop] = CallLoop
    elif method.trigger.looks == "prefix":
        loop = GateLoop
    else:
        loop = RELEASED[method.trigger.code] if method.variant == "reference" else PaperLoop
    return whole(loop(method, trace, written, tokenizer, window))


def whole(loop: Loop) -> Episode[None]:
    """A loop's turns and what no loop can forget: to say how it ended, and to read the answer."""
    yield from loop.run()
    if loop.trace.ended == "running":
        loop.trace.ended = "stalled"
        loop.trace.notes.append(f"{type(loop).__name__} did not say how the episode ended")
    yield from loop.finish()
