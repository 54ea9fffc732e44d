"""Prompts: the paper's layout, the FLARE paper's, and a model's own chat template.

Sources: reference-behaviour §1; FLARE paper, Prompts D.1 to D.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dragin_lab.core.answers import ANSWER_RULES
from dragin_lab.core.chat import Chat, chat_prompt
from dragin_lab.core.episode import Tokenizer
from dragin_lab.core.forms import FORMS, Exemplar, Form
from dragin_lab.core.trace import Passage, Prompt
from dragin_lab.errors import SettingError

__all__ = ["LAYOUTS", "Exemplar", "PromptTemplate"]

LAYOUTS = ("dragin", "flare", "chat")


@dataclass(frozen=True)
class PromptTemplate:
    """How exemplars, passages, question and the answer so far become one prompt.

    ``instruction`` is a line put before the test question only. ``layout="dragin"`` puts the passages behind the
    exemplars under ``Context:``; ``"flare"`` under ``Search results:``; ``"chat"`` puts them before the question in the
    last user turn of the model's own chat template (see ``chat.chat_prompt``), for which the template must be
    ``bound`` to a tokenizer, as every episode does. ``answer_rule`` says how the final answer is read from the text
    (``metrics.ANSWER_RULES``). ``form`` is how answers are written (``forms.FORMS``); the method decides it.
    ``preamble`` is text before the exemplars.
    """

    exemplars: tuple[Exemplar, ...] = ()
    instruction: str = ""
    layout: str = "dragin"
    answer_rule: str = "2wikimultihopqa"
    form: str = "reasoning"
    preamble: str = ""
    chat: Chat | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise SettingError(f"layout {self.layout!r} does not exist; one of {', '.join(LAYOUTS)}")
        if self.answer_rule not in ANSWER_RULES:
            raise SettingError(f"answer rule {self.answer_rule!r} does not exist; one of {', '.join(ANSWER_RULES)}")
        if self.form not in FORMS:
            raise SettingError(f"form {self.form!r} does not exist; one of {', '.join(FORMS)}")
        object.__setattr__(self, "exemplars", tuple(self.exemplars))

    @property
    def shape(self) -> Form:
        """The words of the form that answers are written in."""
        return FORMS[self.form]

    def bound(self, tokenizer: Tokenizer) -> PromptTemplate:
        """The same template, in the chat layout with the tokenizer's chat template.

        Raises ``SettingError`` where the layout is "chat" and the tokenizer has no chat template.
        """
        if self.layout != "chat":
            return self
        tokenizer.chat([("user", "Question: Who?")])
        return replace(self, chat=tokenizer.chat)

    def render(
        self,
        question: str,
        tail: str = "",
        passages: Sequence[Passage] | None = None,
        *,
        slots: int = 0,
        closing: str = "Answer in the same format as before.",
    ) -> Prompt:
        """One prompt; ``tail`` is the answer so far exactly as it stands behind ``Answer:``, spaces and all.

        ``passages=None`` gives the direct prompt. ``slots`` is how many numbered lines to write even where fewer
        passages came back (the released code writes empty ones).
        """
        found: list[tuple[str, str]] = []
        if passages is not None:
            texts = [p.text for p in passages] + [""] * max(0, slots - len(passages))
            numbered = "".join(f"[{i}] {text}\n" for i, text in enumerate(texts, 1))
            if self.layout == "flare":
                found = [("", "Search results:\n"), ("passages", numbered)]
            else:
                found = [("", "Context:\n"), ("passages", numbered), ("", closing + "\n")]
        found += [("", self.instruction + "Question: "), ("question", question)]
        if self.layout == "chat":
            return chat_prompt(self.chat, self.shape, self.preamble, self.exemplars, found, tail)
        exemplars = self.preamble + "".join(map(self.shape.exemplar, self.exemplars))
        parts = [("exemplars", exemplars), *found, ("", f"\n{self.shape.label}"), ("answer", tail)]
        text, spans = "", {}
        for name, part in parts:
            if name and part:
                spans[name] = (len(text), len(text) + len(part))
            text += part
        return Prompt(text, spans)

    def fit(
        self,
        build: Callable[[PromptTemplate, Sequence[Passage] | None], Prompt],
        passages: Sequence[Passage] | None,
        fits: Callable[[Prompt], bool],
        limit: str = "the context window",
    ) -> Prompt:
        """The prompt with as little dropped as needed: passages from the last rank up, then exemplars from the first.

        ``build(template, passages)`` makes the prompt, ``fits`` says whether it goes into the context window, ``limit``
        names that window for people; what was dropped stands in the prompt's notes. Raises ``SettingError`` when the
        question alone is too long.
        """
        prompt = build(self, passages)
        if fits(prompt):
            return prompt
        all_passages, all_exemplars = list(passages or ()), list(self.exemplars)
        shorter = [(n, len(all_exemplars)) for n in range(len(all_passages) - 1, -1, -1)]
        shorter += [(0, m) for m in range(len(all_exemplars) - 1, -1, -1)]
        for n, m in shorter:
            template = replace(self, exemplars=tuple(all_exemplars[len(all_exemplars) - m :]))
            prompt = build(template, all_passages[:n] or None)
            if fits(prompt):
                notes = []
                if n < len(all_passages):
                    notes.append(f"dropped {len(all_passages) - n} of {len(all_passages)} passages to fit the window")
                if m < len(all_exemplars):
                    notes.append(
                        f"dropped {len(all_exemplars) - m} of {len(all_exemplars)} exemplars to fit the window"
                    )
                return replace(prompt, notes=tuple(notes))
        alone = len(build(replace(self, exemplars=()), None).text)
        raise SettingError(
            f"the question with the answer so far, {alone:,} characters, does not fit into {limit} "
            "even without exemplars and passages; shorten it, lower max_new_tokens, or use another model"
        )
