"""What a branch has other than its trace: one token, query, set of passages or decision, checked against the trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dragin_lab.checks import flag, position, shown, text
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.retrieval.doors import as_passages
from dragin_lab.trace.trace import Draft, Parting, Passage, Prompt, Trace

#: Loops whose trigger judges drafts (``Trigger.loop``).
JUDGING = ("look-ahead", "flare", "prefix")
RETRIEVE, _GO_ON = "retrieve", "go on"
_SOURCES = ("draft", "continuation", "extraction")
#: Before a text that is encoded to stand after another, so that no tokenizer takes it for the beginning.
_ANCHOR = "\n"


@dataclass(frozen=True)
class Change:
    """What a branch is to have in the place of what was written, asked, found or decided: ``parting`` says where."""

    parting: Parting
    ids: tuple[int, ...] = ()  # that the text begins with
    passages: tuple[Passage, ...] = ()
    sentence: int | None = None  # up to whose end nothing fires, where a draft is written on instead of retrieving

    @property
    def retrieves(self) -> bool:
        """Whether another decision is to retrieve."""
        return self.parting.after == RETRIEVE

    @property
    def rules(self) -> bool:
        """Whether the trigger is overruled."""
        parting = self.parting
        return parting.kind == "decision" and (parting.before != parting.after or parting.token is not None)


def find_text(trace: Trace, step: int | None, source: str) -> tuple[Draft | None, Prompt | None]:
    """A text of a trace and the prompt it was written after; None for what is not there."""
    if source == "extraction":
        return trace.extraction, trace.extraction_prompt
    if step is None or step >= len(trace.steps):
        return None, None
    one = trace.steps[step]
    return (one.draft, one.prompt) if source == "draft" else (one.continuation, one.passages_prompt)


def read_change(
    tokenizer: Any,
    method: Method,
    trace: Trace,
    *,
    step: int | None = None,
    token: int | None = None,
    to: int | str | None = None,
    source: str | None = None,
    query: str | None = None,
    passages: Any = None,
    retrieve: bool | None = None,
) -> Change:
    """The change that ``Lab.branch`` is asked for. Raises ``SettingError`` for one that cannot be made."""
    asked = {"to": to, "query": query, "passages": passages, "retrieve": retrieve}
    given_names = [name for name, value in asked.items() if value is not None]
    if len(given_names) != 1:
        raise SettingError(
            f"a branch changes one thing, and {' and '.join(given_names) or 'nothing'} is given; give token= and to=, "
            "or query=, passages= or retrieve="
        )
    if source is not None and (to is None or source not in _SOURCES):
        raise SettingError(f"source={shown(source)}: of token= and to=; one of {', '.join(_SOURCES)}")
    if to is not None:
        return _change_token(tokenizer, trace, step, token, to, source)
    number = position("step", step, len(trace.steps), "the trace")
    if token is not None and retrieve is None:
        raise SettingError(f"token={token}: goes with to= or retrieve=True; leave it out with {given_names[0]}=")
    if retrieve is not None:
        return _change_decision(method, trace, number, token, flag("retrieve", retrieve))
    asked_step, parent = trace.steps[number], trace.fingerprint
    if asked_step.query is None:
        searching = [str(one.index + 1) for one in trace.steps if one.query is not None]
        there = ", ".join(searching) or "none"
        raise SettingError(f"step={step}: nothing was searched for there; steps with a query: {there}")
    if query is not None:
        if not text("query", query).strip():
            raise SettingError(f"query={query!r} is empty; give a text to search for")
        return Change(Parting(parent, "query", number, asked_step.query.text, query))
    read = tuple(as_passages(passages, method.top_k, "passages=", asked_step.query.sent))
    before, after = (", ".join(passage.id for passage in several) for several in (asked_step.passages, read))
    return Change(Parting(parent, "passages", number, before, after), passages=read)


def _change_token(
    tokenizer: Any, trace: Trace, step: int | None, token: int | None, to: int | str, source: str | None
) -> Change:
    number = None
    if source != "extraction":
        number = position("step", step, len(trace.steps), "the trace")
        source = source or ("draft" if trace.steps[number].draft is not None else "continuation")
    elif step is not None:
        raise SettingError(f"step={step}: the extraction belongs to no step; leave step out")
    written, _ = find_text(trace, number, source)
    whose = f"the {source}" + ("" if step is None else f" of step {step}")
    if written is None:
        raise SettingError(f"{whose} does not exist: nothing was written there; choose another step or source")
    at = position("token", token, len(written), whose)
    put_in = _read_tokens(tokenizer, written, at, to)
    before, after = (tokenizer.decode(ids, special=True) for ids in (written.ids[at : at + 1].tolist(), put_in))
    parting = Parting(trace.fingerprint, "token", number, before, after, source, at)
    return Change(parting, (*written.ids[:at].tolist(), *put_in))


def _read_tokens(tokenizer: Any, written: Draft, token: int, to: int | str) -> tuple[int, ...]:
    """The ids that ``to`` stands for in the place of a token: an id, or a text, which may be several tokens.

    A text that an alternative has, with or without the space before it, is that alternative. Any other stands after a
    space where the token had one.
    """
    if not isinstance(to, str):
        return (position("to", to, len(tokenizer), "the vocabulary", things="ids", first=0),)
    if not text("to", to):
        raise SettingError("to='' is empty; give the text or the id of a token")
    names = written.alternative_tokens[token] if written.alternative_tokens else ()
    alternatives = dict(zip(names, written.alternative_ids[token].tolist(), strict=False))
    for fits in (lambda name: name == to, lambda name: name.strip() == to.strip()):
        matches = [i for name, i in alternatives.items() if fits(name)]
        if len(matches) == 1 and to.strip():
            return (matches[0],)
    start, stop = written.offsets[token].tolist()
    opens = written.pieces[token].startswith(tokenizer.marker or " ") or written.text[start:stop].startswith(" ")
    spaced = " " + to if opens and not to[:1].isspace() else to
    before = tokenizer.encode(_ANCHOR, special=False)
    ids = tokenizer.encode(_ANCHOR + spaced, special=False)
    if ids[: len(before)] != before or len(ids) == len(before):
        raise SettingError(f"to={to!r} cannot be encoded after another text; give an id")
    return tuple(ids[len(before) :])


def _change_decision(method: Method, trace: Trace, number: int, token: int | None, retrieve: bool) -> Change:
    step = trace.steps[number]
    if method.variant == "reference":
        raise SettingError("retrieve=: the released code's decisions are not flipped; use variant='paper'")
    if step.draft is None or step.decision is None or method.trigger.loop not in JUDGING:
        remedy = "replace a token instead: token=, to=" if method.trigger.loop == "call" else "ask with another method"
        raise SettingError(f"retrieve={retrieve}: no trigger judged a draft in step {number + 1}; {remedy}")
    if token is not None and not retrieve:
        raise SettingError(f"token={token}: says where to retrieve; leave it out with retrieve=False")
    at = None if token is None else position("token", token, len(step.draft), f"the draft of step {number + 1}")
    spans = step.words.spans  # (w, 2)
    if retrieve and not (len(spans) if at is None else ((spans[:, 0] <= at) & (at < spans[:, 1])).any()):
        place = f"step {number + 1} has no judged word" + ("" if at is None else f" at token {token}")
        raise SettingError(f"retrieve=True: the draft of {place}, so nothing says what to search for")
    before, after = (RETRIEVE if yes else _GO_ON for yes in (step.decision.retrieve, retrieve))
    change = Change(Parting(trace.fingerprint, "decision", number, before, after, "draft", at))
    if not retrieve and step.decision.retrieve and method.trigger.span == "word":
        return replace(change, ids=tuple(step.draft.ids.tolist()), sentence=step.decision.sentence)
    return change
