"""Which loop a method runs."""

from __future__ import annotations

from dataclasses import replace

from dragin_lab.core.call_loop import CallLoop
from dragin_lab.core.episode import Episode, Tokenizer
from dragin_lab.core.etc import EtcLoop
from dragin_lab.core.gate import GateLoop
from dragin_lab.core.loop import Loop
from dragin_lab.core.method import Method
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.released import ReferenceLoop
from dragin_lab.core.trace import Trace

#: The loops of released codes, by whose they are (``When.code``).
RELEASED: dict[str, type[Loop]] = {"dragin": ReferenceLoop, "etc": EtcLoop}


def episode(
    method: Method, trace: Trace, template: PromptTemplate, tokenizer: Tokenizer, *, window: int | None = None
) -> Episode[None]:
    """The generator that answers ``trace.question`` and records itself in ``trace`` as it goes.

    ``window`` is the model's context length in pieces; None where it has no limit. Raises ``SettingError`` for a
    template in the chat layout where the tokenizer has no chat template.
    """
    written = replace(template, form=method.when.form).bound(tokenizer)
    if method.when.looks == "call":
        loop: type[Loop] = CallLoop
    elif method.when.looks == "prefix":
        loop = GateLoop
    else:
        loop = RELEASED[method.when.code] if method.variant == "reference" else PaperLoop
    return _whole(loop(method, trace, written, tokenizer, window))


def _whole(loop: Loop) -> Episode[None]:
    """A loop's turns and what no loop can forget: to say how it ended, and to read the answer."""
    yield from loop.run()
    if loop.trace.ended == "running":
        loop.trace.ended = "stalled"
        loop.trace.notes.append(f"{type(loop).__name__} did not say how the episode ended")
    yield from loop.finish()
