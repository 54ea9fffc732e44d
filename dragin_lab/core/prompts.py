"""Prompts: the paper's layout, the FLARE paper's, and a user's own.

Sources: reference-behaviour §1; FLARE paper, Prompts D.1 to D.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dragin_lab.checks import check_text, choice, number, several, shown
from dragin_lab.core.answers import (
    ANSWER_RULES,
    FORMS,
    Exemplar,
    Form,
    extract_answer,
    is_readable,
    read_answer,
    score_answer,
)
from dragin_lab.core.chat import Chat, chat_prompt, task_prompt
from dragin_lab.core.episode import Tokenizer
from dragin_lab.core.fingerprint import Node, describe, digest
from dragin_lab.core.settings import Settings
from dragin_lab.errors import SettingError
from dragin_lab.text import facts_html
from dragin_lab.trace.trace import Passage, Prompt

LAYOUTS = ("dragin", "flare", "chat")
Layout = Callable[[str, Sequence[Passage] | None, str], str]
#: What begins a question, and the passages, in the package's own layouts; and what stands after the
#: passages.
_QUESTION = "Question:"
_PASSAGES = {"dragin": "Context:", "flare": "Search results:", "chat": "Context:"}
CLOSING = "Answer in the same format as before."
#: What the papers' instruction speaks of, and what a chat is told instead, where no example stands
#: above.
_ABOVE = "following the example above"
_CHAT_INSTRUCTION = (
    'Reason step by step in a few sentences. End with "So the answer is" and the answer.\n'
)
Metric = Callable[[str, Sequence[str]], float]


@dataclass(frozen=True)
class PromptTemplate:
    """How exemplars, passages, question and the answer so far become one prompt.

    ``instruction`` is a line put before the test question only. ``layout="dragin"`` puts the
    passages after the exemplars under ``Context:``; ``"flare"`` under ``Search results:``;
    ``"chat"`` puts them before the question in the last user turn of the model's own chat template
    (see ``chat_prompt``), for which the template must be ``bound`` to a tokenizer, as every episode
    does. ``answer_rule`` says how the final answer is read from the text
    (``answers.ANSWER_RULES``). ``form`` is how answers are written (``answers.FORMS``); the method
    decides it. ``preamble`` is text before the exemplars. ``until`` are the texts with which
    another example would begin: there the paper variant ends what the model writes, and cuts it.
    None is every line that the package's own layouts write around an example (instruction,
    ``Question:``, ``Context:``, closing), and nothing for a layout of your own. ``chosen`` names a
    set that was taken because no exemplars were given.

    Three of them may be functions of your own: a ``layout`` gives the prompt from question,
    passages (None for none) and the answer so far, with which it must end; an ``answer_rule`` gives
    the answer from the whole text; each of ``metrics`` gives a number from the answer and the gold
    answers, recorded under the function's name.
    """

    exemplars: tuple[Exemplar, ...] = ()
    instruction: str = ""
    layout: str | Layout = "dragin"
    answer_rule: str | Callable[[str], str] = "2wikimultihopqa"
    form: str = "reasoning"
    preamble: str = ""
    metrics: tuple[Metric, ...] = ()
    until: tuple[str, ...] | None = None
    # ISO, in place of today in a chat template that writes the date; set by whoever asks
    day: str = ""
    chat: Chat | None = field(default=None, compare=False, repr=False)
    chosen: str = field(default="", compare=False)
    # ``described`` when a run began; None: at each look
    looked: Mapping[str, Node] | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"PromptTemplate({len(self.exemplars)} exemplars, layout={self.layout!r})"

    def _repr_html_(self) -> str:
        asked = " · ".join(exemplar.question for exemplar in self.exemplars[:3])
        names = ("instruction", "layout", "form", "answer_rule", "preamble", "chosen")
        facts = {name: getattr(self, name) for name in names}
        return facts_html(repr(self), facts | {"begin with": asked})

    def __post_init__(self) -> None:
        for kind, given, known in (
            ("layout", self.layout, LAYOUTS),
            ("answer rule", self.answer_rule, ANSWER_RULES),
        ):
            is_function = callable(given) and not isinstance(given, type)
            if not is_function and not (isinstance(given, str) and given in known):
                raise SettingError(
                    f"{kind} {shown(given)} does not exist; one of {', '.join(known)}, or a"
                    " function"
                )
        choice("form", self.form, FORMS)
        for label in ("instruction", "preamble"):
            check_text(label, getattr(self, label))
        examples = several(
            "exemplars", self.exemplars, Exemplar, "give Exemplar(question, rationale, answer)"
        )
        object.__setattr__(self, "exemplars", tuple(examples))
        if self.until is not None:
            remedy = "give the texts that begin an example, such as ('\\nQuestion:',)"
            object.__setattr__(self, "until", tuple(several("until", self.until, str, remedy)))
            if not all(self.until):
                raise SettingError(
                    f"until={self.until!r} holds an empty text, at which every answer would end"
                )
        names = ["em", "f1", "precision", "recall", *map(name_of, self.metrics)]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise SettingError(
                f"two scores are called {twice!r}; give the metric a function name of its own"
            )

    @property
    def shape(self) -> Form:
        """The words of the form that answers are written in."""
        return FORMS[self.form]

    @property
    def example_marks(self) -> tuple[str, ...]:
        """The texts with which another example would begin: ``until``, else those of the layout."""
        if self.until is not None:
            return self.until
        if callable(self.layout) or self.shape.task:
            return ()
        lines = [*self._instruction.splitlines(), _QUESTION, *_PASSAGES.values(), CLOSING]
        return tuple(dict.fromkeys(f"\n{line.strip()}" for line in lines if line.strip()))

    @property
    def _instruction(self) -> str:
        """The instruction; in a chat the papers' own, which speaks of an example above, is put
        in other words.
        """
        if self.layout == "chat" and _ABOVE in self.instruction:
            return _CHAT_INSTRUCTION
        return self.instruction

    def bound(self, tokenizer: Tokenizer) -> PromptTemplate:
        """The same template, in the chat layout with the tokenizer's chat template.

        Raises ``SettingError`` where the layout is "chat" and the tokenizer has no chat template.
        """
        if self.layout != "chat" and not (self.shape.task and tokenizer.chats):
            return self
        tokenizer.chat([("user", "Question: Who?")])
        chat: Any = tokenizer.chat
        return replace(self, chat=partial(chat, day=self.day) if self.day else chat)

    def render(
        self,
        question: str,
        tail: str = "",
        passages: Sequence[Passage] | None = None,
        *,
        slots: int = 0,
        closing: str = CLOSING,
    ) -> Prompt:
        """One prompt; ``tail`` is the answer so far exactly as it stands after ``Answer:``, spaces
        and all.

        ``passages=None`` gives the direct prompt. ``slots`` is how many numbered lines to write
        even where fewer passages came back (the released code writes empty ones).
        """
        if self.shape.task:
            return task_prompt(self.chat, self.shape.task, question, tail)
        if callable(self.layout):
            return self._render_own(question, passages, tail)
        turn: list[tuple[str, str]] = []
        if passages is not None:
            texts = [p.text for p in passages] + [""] * (slots - len(passages))
            numbered = "".join(f"[{i}] {text}\n" for i, text in enumerate(texts, 1))
            turn = [("", f"{_PASSAGES[self.layout]}\n"), ("passages", numbered)]
            turn += [("", closing + "\n")] * (self.layout != "flare")
        turn += [("", f"{self._instruction}{_QUESTION} "), ("question", question)]
        if self.layout == "chat":
            return chat_prompt(self.chat, self.shape, self.preamble, self.exemplars, turn, tail)
        exemplars = self.preamble + "".join(map(self.shape.exemplar, self.exemplars))
        return Prompt.join(
            [("exemplars", exemplars), *turn, ("", f"\n{self.shape.label}"), ("answer", tail)]
        )

    def _render_own(self, question: str, passages: Sequence[Passage] | None, tail: str) -> Prompt:
        """The prompt of a custom layout. Raises ``SettingError`` where it cannot be one."""
        assert callable(self.layout)
        text = self.layout(question, passages, tail)
        if not isinstance(text, str) or not text.strip() or not text.endswith(tail):
            raise SettingError(
                f"the layout {name_of(self.layout)} gave {str(text)[-60:]!r}; give a text that ends"
                f" with the answer so far, {tail[-60:]!r}"
            )
        before, asked, after = text.removesuffix(tail).rpartition(question or "\0")
        return Prompt.join([("", before), ("question", asked), ("", after), ("answer", tail)])

    def read(self, text: str, *, released: bool = False) -> str:
        """The answer that a whole text gives. Raises ``SettingError`` where a custom function
        gives none.
        """
        if not callable(self.answer_rule):
            read = extract_answer if released else read_answer
            return read(self.shape.stated(text), self.answer_rule, self.shape.phrase)
        answer = self.answer_rule(text)
        if not isinstance(answer, str):
            raise SettingError(
                f"the answer rule {name_of(self.answer_rule)} gave {answer!r}; give a text, '' for"
                " none"
            )
        return answer

    def readable(self, text: str) -> bool:
        """Whether the whole text states an answer (``answers.is_readable``); for an own rule,
        whether it reads one.
        """
        if callable(self.answer_rule):
            return bool(self.read(text).strip())
        return is_readable(self.shape.stated(text), self.answer_rule, self.shape.phrase)

    def score(
        self, answer: str, golds: Sequence[str], *, released: bool = False
    ) -> dict[str, float]:
        """Exact match, F1, precision, recall and the ``metrics``. ``SettingError`` for a value
        that is not a number.
        """
        scores = score_answer(answer, golds, released=released)
        for metric in self.metrics:
            name = name_of(metric)
            value = metric(answer, golds)
            if isinstance(value, bool | np.bool_):
                value = int(value)  # right or wrong
            scores[name] = number(name, value)
        return scores

    @property
    def described(self) -> Mapping[str, Node]:
        """The functions that its user gave, by what they are (``fingerprint.describe``)."""
        if self.looked is not None:
            return self.looked
        parts: list[tuple[str, Any]] = [("layout", self.layout), ("answer rule", self.answer_rule)]
        parts += [("metric", metric) for metric in self.metrics]
        return {f"{kind} {name_of(part)}": describe(part) for kind, part in parts if callable(part)}

    @property
    def settings(self) -> Settings:
        """What decides prompts and answers, as plain data; functions by name and digest."""
        settings: Settings = {
            "exemplars": len(self.exemplars),
            "instruction": self.instruction,
            "layout": name_of(self.layout),
            "answer_rule": name_of(self.answer_rule),
            "form": self.form,
        }
        if self.until is not None:
            settings["until"] = self.until
        if self.day:
            settings["day"] = self.day
        if self.metrics:
            settings["metrics"] = list(map(name_of, self.metrics))
        own = {label: digest(node) for label, node in self.described.items()}
        if own:
            settings["defined"] = own
        return settings

    def fit(
        self,
        question: str,
        tail: str,
        passages: Sequence[Passage] | None,
        fits: Callable[[Prompt], bool],
        limit: str = "the context window",
    ) -> Prompt:
        """The prompt with as little dropped as needed: exemplars from the first, then passages from
        the last rank up.

        A passage goes only where it does not fit without any exemplar either. ``fits`` says whether
        a prompt goes into the context window, ``limit`` names that for people; what was dropped
        stands in the prompt's notes. Raises ``SettingError`` when the question alone is too long.
        """
        passages = list(passages or ())
        n = len(passages)
        m = len(self.exemplars)
        for fewer_passages, fewer_exemplars in product(range(n + 1), range(m + 1)):
            template = replace(self, exemplars=self.exemplars[fewer_exemplars:])
            prompt = template.render(question, tail, passages[: n - fewer_passages] or None)
            if fits(prompt):
                notes = []
                dropped = {}
                for name, gone, size in (
                    ("passages", fewer_passages, n),
                    ("exemplars", fewer_exemplars, m),
                ):
                    if gone:
                        dropped[name] = gone
                        notes.append(f"dropped {gone} of {size} {name} to fit the window")
                return replace(prompt, notes=tuple(notes), dropped=dropped)
        bare = replace(self, exemplars=(), preamble="", instruction="")
        alone = len(bare.render(question, tail).text)
        given = len(replace(self, exemplars=()).render(question, tail).text) - alone
        what = "the question with the answer so far"
        if given > alone:
            what = "the template's preamble and instruction"
        raise SettingError(
            f"{what}, {max(given, alone):,} characters, does not fit into {limit} even without"
            " exemplars and passages; shorten it, lower max_new_tokens, or use another model"
        )


def name_of(given: Any) -> str:
    """A text as it is, a function by its name."""
    return given if isinstance(given, str) else str(getattr(given, "__name__", given))
