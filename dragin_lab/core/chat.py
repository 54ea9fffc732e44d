"""The chat layout: a prompt as turns in a model's own chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragin_lab.core.forms import FORMS, Exemplar, Form
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Prompt

#: Writes (role, text) turns as a chat template does, up to where the assistant begins (``episode.Tokenizer.chat``).
Chat = Callable[[Sequence[tuple[str, str]]], str]

_MARKS = [chr(code) for code in range(0xE000, 0xE100)]  # private use: in no vocabulary, and no template strips them


def task_prompt(chat: Chat | None, task: str, question: str, tail: str) -> Prompt:
    """A prompt of one user turn, ``task`` with the question in it; without a chat template the task by itself.

    Raises ``SettingError`` for a template that leaves out or repeats the question.
    """
    asked = question.strip() if question.strip().endswith("?") else f"{question.strip()}?"
    mark = next(m for m in _MARKS if m not in asked)
    text = task.format(question=f"{mark}{asked}{mark}")
    parts = (text if chat is None else chat([("user", text)])).split(mark)
    if len(parts) != 3:
        raise SettingError("the chat template leaves out or repeats the question; this model cannot be asked in tags")
    text, start = "".join(parts), len(parts[0])
    spans = {"question": (start, start + len(asked))}
    if tail.strip():
        spans["answer"] = (len(text), len(text) + len(tail))
    return Prompt(text + tail, spans, special=chat is None)


def chat_prompt(
    chat: Chat | None,
    form: Form,
    preamble: str,
    exemplars: Sequence[Exemplar],
    asked: Sequence[tuple[str, str]],
    tail: str,
) -> Prompt:
    """A prompt in which every exemplar is a turn of the user and one of the assistant.

    Its own earlier turns are what an instruct model takes its manner from; exemplars inside one user turn are rather
    commented on or continued. ``asked`` are the (name, text) parts of the last user turn: passages, instruction and
    question. ``preamble`` begins the first user turn, because not every template knows a system's turn. ``Answer:`` is
    left out, as the turn says it; any other label of the form opens the assistant's turn.

    ``tail``, the answer so far, stands directly after what the template writes where the assistant begins, exactly as
    the model wrote it, so that every prompt of an episode begins alike. White space that would double the one there is
    dropped.

    Raises:
        SettingError: no ``chat``, or a template that leaves out or repeats a part of the turns.
    """
    if chat is None:
        raise SettingError("layout 'chat' needs a tokenizer: use template.bound(lm.tokenizer)")
    plain = FORMS["reasoning"].label
    turns: list[tuple[str, list[tuple[str, str]]]] = []  # role, parts of its text with their names
    for exemplar in exemplars:
        label = form.label_of(exemplar)
        opening = "" if label == plain else f"{label} "
        turns.append(("user", [("", f"Question: {exemplar.question}")]))
        turns.append(("assistant", [("", f"{opening}{form.worked(exemplar)}")]))
    turns.append(("user", list(asked)))
    if preamble:
        turns[0][1].insert(0, ("", preamble))
    mark = next(m for m in _MARKS if not any(m in text for _, part in turns for _, text in part))
    written, names = [], []
    for number, (role, part) in enumerate(turns):
        text = ""
        for name, words in part:
            words = words.strip() if name == "question" else words
            text += f"{mark}{words}{mark}" if name else words
        names += [name for name, _ in part if name]
        first, last = number == 0 and exemplars, number == len(turns) - 2 and exemplars
        written.append((role, f"{mark if first else ''}{text.strip()}{mark if last else ''}"))
    names = ["exemplars"] * bool(exemplars) + names
    tokens = chat(written).split(mark)
    if len(tokens) != 2 * len(names) + 1:
        raise SettingError("the chat template leaves out or repeats a part of the prompt; use layout='dragin'")
    text, spans = tokens[0], {}
    for name, inside, after in zip(names, tokens[1::2], tokens[2::2], strict=True):
        if inside:
            spans[name] = (len(text), len(text) + len(inside))
        text += inside + after
    if form.label != plain:
        text += form.label if text[-1:].isspace() else f" {form.label}"
    if not text or text[-1].isspace():
        tail = tail.lstrip()
    if tail.strip():
        spans["answer"] = (len(text), len(text) + len(tail))
        text += tail
    return Prompt(text, spans, special=False)
