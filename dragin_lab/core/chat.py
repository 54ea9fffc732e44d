"""Prompts in a model's own chat template, and of models that were trained on one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragin_lab.core.answers import FORMS, Exemplar, Form
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Prompt

#: Writes (role, text) turns as a chat template does, up to where the assistant begins
#: (``episode.Tokenizer.chat``).
Chat = Callable[[Sequence[tuple[str, str]]], str]
# private use: in no vocabulary, and no template strips them
_MARKS = [chr(code) for code in range(0xE000, 0xE100)]


def task_prompt(chat: Chat | None, task: str, question: str, tail: str) -> Prompt:
    """A prompt of one user turn, ``task`` with the question in it; without a chat template the task
    by itself.

    Raises ``SettingError`` for a chat template that leaves out or repeats the question.
    """
    asked = question.strip() if question.strip().endswith("?") else f"{question.strip()}?"
    mark = next(mark for mark in _MARKS if mark not in asked)
    text = task.format(question=f"{mark}{asked}{mark}")
    parts = (text if chat is None else chat([("user", text)])).split(mark)
    if len(parts) != 3:
        raise SettingError(
            "the chat template leaves out or repeats the question; this model cannot be asked in"
            " tags"
        )
    named_parts = [
        ("", parts[0]),
        ("question", asked),
        ("", parts[2]),
        ("answer" if tail.strip() else "", tail),
    ]
    return Prompt.join(named_parts, special=chat is None)


def chat_prompt(
    chat: Chat | None,
    form: Form,
    preamble: str,
    exemplars: Sequence[Exemplar],
    asked: Sequence[tuple[str, str]],
    tail: str,
) -> Prompt:
    """A prompt in which every exemplar is a turn of the user and one of the assistant.

    An instruct model imitates its own earlier turns; exemplars inside one user turn it tends to
    comment on, or to continue. ``asked`` are the (name, text) parts of the last user turn:
    passages, instruction and question. ``preamble`` begins the first user turn, because not every
    template knows a system's turn. ``Answer:`` is left out, as the turn says it; any other label of
    the form opens the assistant's turn.

    ``tail``, the answer so far, stands directly after what the template writes where the assistant
    begins, exactly as the model wrote it, so that every prompt of an episode begins alike. White
    space that would double the one there is dropped. Raises ``SettingError`` without ``chat``, and
    for a template that leaves out or repeats a part.
    """
    if chat is None:
        raise SettingError("layout 'chat' needs a tokenizer: use template.bound(lm.tokenizer)")
    plain = FORMS["reasoning"].label
    turns: list[tuple[str, str]] = []
    for exemplar in exemplars:
        label = form.label_of(exemplar)
        opening = "" if label == plain else f"{label} "
        turns += [
            ("user", f"Question: {exemplar.question}"),
            ("assistant", opening + form.worked(exemplar)),
        ]
    written = preamble + "".join(text for _, text in [*turns, *asked])
    mark = next(mark for mark in _MARKS if mark not in written)
    last = [(name, text.strip() if name == "question" else text) for name, text in asked]
    turns.append(("user", "".join(f"{mark}{text}{mark}" if name else text for name, text in last)))
    turns[0] = ("user", preamble + turns[0][1])
    turns = [(role, text.strip()) for role, text in turns]
    names = [name for name, _ in asked if name]
    if exemplars:
        names.insert(0, "exemplars")
        turns[0], turns[-2] = ("user", mark + turns[0][1]), ("assistant", turns[-2][1] + mark)
    pieces = chat(turns).split(mark)
    if len(pieces) != 2 * len(names) + 1:
        raise SettingError(
            "the chat template leaves out or repeats a part of the prompt; use layout='dragin'"
        )
    parts = [("", pieces[0])]
    for name, inside, after in zip(names, pieces[1::2], pieces[2::2], strict=True):
        parts += [(name, inside), ("", after)]
    end = "".join(pieces)[-1:]
    if form.label != plain:
        parts.append(("", form.label if end.isspace() else f" {form.label}"))
        end = form.label[-1:]
    if not end or end.isspace():
        tail = tail.lstrip()
    return Prompt.join([*parts, ("answer", tail if tail.strip() else "")], special=False)
