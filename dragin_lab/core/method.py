"""The methods: each is *when* to retrieve x *what* to ask for, with settings (paper, Table 1)."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dragin_lab.core.call_loop import CallLoop
from dragin_lab.core.episode import Episode, Tokenizer
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.released import ReferenceLoop
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.core.trace import Trace
from dragin_lab.errors import SettingError

VARIANTS = ("reference", "paper")

#: What a *when* looks at before it decides: nothing ("first": it searches before it writes), a draft ("ahead"), or a
#: draft in which the model itself may ask ("asked").
WHENS = {
    "never": "first",
    "once": "first",
    "every-n": "first",
    "every-sentence": "first",
    "probability": "ahead",
    "rind": "ahead",
    "search-call": "asked",
    "follow-up": "asked",
}
WHATS = (
    "question",
    "last-n",
    "last-sentence",
    "confident-sentence",
    "qfs",
    "full-context",
    "current",
    "current-without-hits",
    "term",
    "follow-up",
)
#: The methods of the paper (Table 1), and two of the FLARE paper's (Prompts D.2, D.3): name -> (when, what).
METHODS = {
    "wo-rag": ("never", "question"),
    "sr-rag": ("once", "question"),
    "fl-rag": ("every-n", "last-n"),
    "fs-rag": ("every-sentence", "last-sentence"),
    "flare": ("probability", "confident-sentence"),
    "dragin": ("rind", "qfs"),
    "flare-instruct": ("search-call", "term"),
    "self-ask": ("follow-up", "follow-up"),
}
#: The form in which a *when* has the model answer (``forms.FORMS``); else plain reasoning.
_FORMS = {"search-call": "search", "follow-up": "self-ask"}
#: Pieces of a draft and an answer where nobody says: self-ask's text holds its questions too.
_LENGTH, _LENGTHS = 64, {"follow-up": 192, "search-call": 96}
#: The FLARE paper's bonus on the logit of the piece that opens a call, and how long the call is forbidden after a
#: search: our choice, as the paper names no number.
_BONUS, _PAUSE = 2.0, 5
#: θ where none is given: DRAGIN's is Table 9's for Llama2-7b-chat on 2WikiMultihopQA; FLARE's is the released configs'
#: for it (reference variant) and 1 - 0.8 of the FLARE paper's 2WikiMultihopQA setting (paper variant), both on 1 - p.
_THRESHOLDS = {("rind", "reference"): 1.2, ("rind", "paper"): 1.2, ("probability", "reference"): 0.1}
_THRESHOLDS["probability", "paper"] = 0.2


@dataclass(frozen=True)
class Method:
    """One method with every setting; make it with ``dragin_lab.method``. Immutable, comparable, hashable."""

    name: str
    variant: str
    when: str
    what: str
    threshold: float | None  # θ: on the RIND score, or on 1 - p
    top_n: int | None  # words (qfs) or pieces (last-n) of a query; None: last-n takes the whole last chunk
    n: int  # pieces between retrievals of every-n
    max_new_tokens: int  # bounds a draft, and the answer
    top_k: int  # passages a retrieval
    normalize: str | None = None  # "sentence": paper-variant RIND scores scaled as the released code scales them
    sentence_solver: str = "avg"  # reference FLARE: avg, max or min of 1 - p over a sentence
    check_content_words: bool = True  # reference RIND: clear hits on words without content (after the decision)
    doubt_limit: float = 0.1  # confident-sentence drops pieces of 1 - p above this
    query_pieces: int | None = None  # a query is cut to its last pieces; 64 in the reference variant
    full_drafts: bool = False  # paper variant: generate on after a draft's outcome is known, and record it
    call_bonus: float | None = None  # search-call: added to the logit of the pieces that open a call
    call_pause: int | None = None  # search-call: pieces after a search in which none may be opened
    cut: str = "word"  # paper RIND: where a draft is cut, "word" (Eq. 6) or the "sentence" that fired, as released
    keep_passages: bool = True  # paper RIND: False drops them once the sentence that was cut is completed, as released
    pipeline: Pipeline = field(default_factory=load_pipeline)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything a trace records about the method, as plain data."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "pipeline"}
        return plain | {"pipeline": self.pipeline.name}

    @property
    def form(self) -> str:
        """The form in which the method has the model answer (``forms.FORMS``)."""
        return _FORMS.get(self.when, "reasoning")

    def episode(
        self, trace: Trace, template: PromptTemplate, tokenizer: Tokenizer, *, window: int | None = None
    ) -> Episode[None]:
        """The generator that answers ``trace.question`` and records itself in ``trace`` as it goes.

        ``window`` is the model's context length in pieces; None where it has no limit. Raises ``SettingError`` for a
        template in the chat layout where the tokenizer has no chat template.
        """
        written = replace(template, form=self.form).bound(tokenizer)
        loop = ReferenceLoop if self.variant == "reference" else PaperLoop
        if WHENS[self.when] == "asked":
            loop = CallLoop
        return loop(self, trace, written, tokenizer, window).run()


def senseless(when: str, what: str) -> str:
    """Why a *when* and a *what* make no sense together and what to use instead; "" where they do."""
    said = f"when={when!r} with what={what!r} makes no sense"
    if when in ("never", "once") and what != "question":
        return f"{said}: nothing is written before the only search; use what='question', or a when that looks at text"
    own = next((w for w, kind in (("search-call", "term"), ("follow-up", "follow-up")) if kind == what), when)
    if own == when:
        return ""
    thing = "term to search for" if what == "term" else "follow-up question"
    return f"{said}: the model writes a {thing} only with when={own!r}; use that, or another what, such as 'question'"


def _number(name: str, value: Any, low: float, *, above: bool = False) -> float:
    """``value`` as a finite number that is at least (or above) ``low``."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SettingError(f"{name}={value!r} is not a number; give one such as {name}=1.2") from None
    if not math.isfinite(number) or number < low or (above and number == low):
        raise SettingError(f"{name}={value!r} is out of range; it must be {'above' if above else 'at least'} {low:g}")
    return number


def _count(name: str, value: Any, low: int = 1) -> int:
    number = _number(name, value, low)
    if number != int(number):
        raise SettingError(f"{name}={value!r} must be a whole number")
    return int(number)


def choice(kind: str, value: str, choices: tuple[str, ...]) -> str:
    """``value`` if it is one of the choices; else a ``SettingError`` that names the nearest."""
    if value in choices:
        return value
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise SettingError(f"{kind} {value!r} does not exist; {hint}one of {', '.join(choices)}")


def method(
    name: str = "dragin",
    *,
    variant: str = "reference",
    threshold: float | None = None,
    top_n: int | None = None,
    n: int = 16,
    max_new_tokens: int | None = None,
    top_k: int | None = None,
    when: str | None = None,
    what: str | None = None,
    normalize: str | None = None,
    sentence_solver: str = "avg",
    check_content_words: bool = True,
    doubt_limit: float | None = None,
    full_drafts: bool = False,
    call_bonus: float | None = None,
    call_pause: int | None = None,
    cut: str = "word",
    keep_passages: bool = True,
    nlp: Any = None,
) -> Method:
    """A method by name, with any part or setting exchanged.

    ``name`` is a key of ``METHODS``; ``when`` and ``what`` replace its parts (the paper's Tables 4 and 6).
    ``variant="reference"`` is the authors' released code to the letter (docs/reference-behaviour.md), ``"paper"`` the
    equations. ``threshold`` is θ on the RIND score, for FLARE on 1 - p. ``top_n`` counts words for ``qfs`` (default 25)
    and pieces for ``last-n``; for any other ``what`` it becomes None, so that a preset may be kept while ``what`` is
    exchanged. ``top_k`` defaults to 3 passages (2 for the paper variant of ``flare``). ``doubt_limit`` is the 1 - p
    above which ``confident-sentence`` drops a piece (default: θ of the reference FLARE, 0.6 = 1 - β of the FLARE paper
    in the paper variant). ``cut="sentence"`` and ``keep_passages=False`` give the paper variant's RIND one habit of the
    released code each (reference-behaviour §2, §4). ``max_new_tokens`` bounds a draft and the answer (default 64; 96
    for ``search-call``, 192 for ``follow-up``, whose answers hold more). ``call_bonus`` is added to the logit of the
    pieces that open a search call (default 2.0, as in the FLARE paper), except for ``call_pause`` pieces (default 5)
    behind a search, in which none may be opened, so that the same call is not written twice; both belong to
    ``search-call``. ``nlp`` is any spaCy pipeline that finds sentences.

    Raises ``SettingError`` for names that do not exist, values out of range and parts that make no sense together.
    """
    choice("method", name, tuple(METHODS))
    choice("variant", variant, VARIANTS)
    default_when, default_what = METHODS[name]
    when = choice("when", when or default_when, tuple(WHENS))
    what = choice("what", what or default_what, WHATS)
    if message := senseless(when, what):
        raise SettingError(message)
    if normalize is not None:
        choice("normalize", normalize, ("sentence",))
        if when != "rind" or variant != "paper":
            raise SettingError(
                "normalize='sentence' scales paper-variant RIND scores; the reference variant always does"
            )
    choice("cut", cut, ("word", "sentence"))
    if (cut != "word" or not keep_passages) and (when != "rind" or variant != "paper"):
        raise SettingError(
            "cut='sentence' and keep_passages=False change the paper variant's RIND; "
            "the reference variant always does so"
        )
    scored = WHENS[when] == "ahead"
    if threshold is not None and not scored:
        raise SettingError(f"threshold={threshold!r} has no meaning for when={when!r}, which holds nothing against it")
    theta = _number("threshold", _THRESHOLDS[when, variant] if threshold is None else threshold, 0) if scored else None
    if doubt_limit is None:
        reference_limit = theta if when == "probability" and theta is not None else 0.1
        doubt_limit = reference_limit if variant == "reference" else 0.6
    if when == "search-call":
        call_bonus = _number("call_bonus", _BONUS if call_bonus is None else call_bonus, 0)
        call_pause = _count("call_pause", _PAUSE if call_pause is None else call_pause)
    elif call_bonus is not None or call_pause is not None:
        raise SettingError(f"call_bonus and call_pause have no meaning for when={when!r}: it opens no search calls")
    if top_n is None and (what == "qfs" or (what == "last-n" and WHENS[when] != "first")):
        top_n = 25
    length = _LENGTHS.get(when, _LENGTH)
    if top_k is None:
        top_k = 2 if (name, variant) == ("flare", "paper") else 3
    return Method(
        name=name,
        variant=variant,
        when=when,
        what=what,
        threshold=theta,
        top_n=None if top_n is None or what not in ("qfs", "last-n") else _count("top_n", top_n),
        n=_count("n", n),
        max_new_tokens=_count("max_new_tokens", length if max_new_tokens is None else max_new_tokens),
        top_k=_count("top_k", top_k),
        normalize=normalize,
        sentence_solver=choice("sentence_solver", sentence_solver, ("avg", "max", "min")),
        check_content_words=bool(check_content_words),
        doubt_limit=_number("doubt_limit", doubt_limit, 0),
        query_pieces=64 if variant == "reference" else None,
        full_drafts=bool(full_drafts),
        call_bonus=call_bonus,
        call_pause=call_pause,
        cut=cut,
        keep_passages=bool(keep_passages),
        pipeline=load_pipeline(nlp),
    )
