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
        return CallLoop(method, trace, written, tokenizer, window).run()
    if method.when.looks == "prefix":
        return GateLoop(method, trace, written, tokenizer, window).run()
    loop = RELEASED[method.when.code] if method.variant == "reference" else PaperLoop
    return loop(method, trace, written, tokenizer, window).run()
