"""A trigger learned from labelled drafts: a logistic regression over what a draft has, made by ``dl.fit_trigger``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import numpy as np

from dragin_lab.core.scores import doubts, pool_words
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Draft
from dragin_lab.triggers.plain import margin

#: A feature's name, its weight, and the mean and scale that it is standardised with.
Term = tuple[str, float, float, float]
LEAST_P = 1e-4  # how near to 0 or 1 a word's probability is taken


def _sentence_position(draft: Draft) -> np.ndarray:
    sentence = draft.sentence_of_token  # (n,)
    return np.log1p(np.arange(len(draft)) - np.searchsorted(sentence, sentence))


def _doubt_word(draft: Draft) -> np.ndarray:
    """The log-odds that another word than a token's own stood there: log((1 - P) / P), P the word's probability."""
    log_p = pool_words(draft.logprob, draft.word_list, "sum").clip(np.log(LEAST_P), np.log1p(-LEAST_P))  # (w,)
    return (np.log(-np.expm1(log_p)) - log_p)[draft.word_of_token]


def _opens_sentence(draft: Draft) -> np.ndarray:
    """(w,) bool, whether a word is the first of its sentence."""
    return np.diff(draft.sentence_of_word, prepend=-2) != 0


def _is_named(draft: Draft) -> np.ndarray:
    """Whether a token's word is written like a name or a number: a digit, or a capital inside its sentence."""
    marks = [word.strip()[:1] for word in draft.words]
    written = [m.isdigit() or (m.isupper() and not o) for m, o in zip(marks, _opens_sentence(draft), strict=True)]
    return np.array(written, float)[draft.word_of_token]


def _attention_paid(draft: Draft) -> np.ndarray:
    rows = draft.attention.astype(np.float64).mean(axis=0)  # (n, p + n)
    return rows[:, rows.shape[1] - len(draft) :].sum(axis=1)


#: What a draft has, each (n,) float64. ``paid`` needs attention; ``hidden 17`` is a component of the hidden state.
FEATURES: dict[str, Callable[[Draft], np.ndarray]] = {
    "word doubt": _doubt_word,
    "stop word": lambda draft: draft.stop_word.astype(float),
    "opens": lambda draft: _opens_sentence(draft)[draft.word_of_token].astype(float),  # its word opens a sentence
    "entropy": lambda draft: draft.entropy,
    "doubt": lambda draft: doubts(draft.logprob),
    "margin": lambda draft: margin.function(draft),  # type: ignore[attr-defined]
    "received": lambda draft: draft.received,
    "name or number": _is_named,
    "position": _sentence_position,  # log(1 + tokens since the start of its sentence)
    "paid": _attention_paid,  # the share of its attention that a token pays to the draft, and not to the prompt
}
HIDDEN = "hidden "
#: What a trigger is fitted on unasked. None is on a scale of its model, and fitted on one model they find what another
#: one lacks; the others do that worse (docs/results/triggers.md).
DEFAULT = ("word doubt", "stop word", "opens")


def features(draft: Draft, names: Sequence[str]) -> np.ndarray:
    """(n, f) float64 the named features of a draft's tokens. Raises ``SettingError`` for a name that does not exist."""
    columns = []
    for name in names:
        if name.startswith(HIDDEN):
            columns.append(draft.hidden[:, int(name.removeprefix(HIDDEN))])
        elif name in FEATURES:
            columns.append(FEATURES[name](draft))
        else:
            raise SettingError(f"feature {name!r} does not exist; one of {', '.join(FEATURES)}, or hidden 0 …")
    return np.stack(columns, axis=1).astype(np.float64) if columns else np.zeros((len(draft), 0))


@dataclass(frozen=True)
class Logistic(Trigger):
    """A fact is probably missing: a logistic regression over what the draft has is above θ."""

    source = "logistic regression, dl.fit_trigger"
    threshold: float = setting(0.5, label="probability of a missing fact", top=1.0)
    terms: tuple[Term, ...] = ()
    bias: float = 0.0

    def contributions(self, draft: Draft) -> np.ndarray:
        """(n, f) what each term adds to the log-odds of a token, against a token of average features."""
        if not self.terms:
            raise SettingError(f"trigger {self.name!r} has no terms; make it with dl.fit_trigger")
        weights, means, scales = np.array([term[1:] for term in self.terms]).T  # (f,) each
        return weights * (features(draft, [term[0] for term in self.terms]) - means) / scales

    def score(self, draft: Draft) -> np.ndarray:
        if not len(draft):
            return np.zeros(0)
        log_odds = self.bias + self.contributions(draft).sum(axis=1)  # (n,)
        return 0.5 * (1 + np.tanh(log_odds / 2))  # the logistic function, which as 1 / (1 + exp) would overflow


def define(name: str, terms: Sequence[Sequence[Any]], bias: float, threshold: float) -> Logistic:
    """Enter a fitted trigger under its name, and make one."""
    plain = tuple((str(feature), float(w), float(mean), float(scale)) for feature, w, mean, scale in terms)
    used = {feature.split()[0] for feature, *_ in plain}
    theta = setting(float(threshold), label="probability of a missing fact", top=1.0)
    settings = {"threshold": theta, "terms": field(default=plain), "bias": field(default=float(bias))}
    needs = ("attention",) * ("paid" in used) + ("hidden",) * ("hidden" in used)
    about = f"{Logistic.__doc__} Fitted on {len(plain)} features."
    namespace = {"name": name, "needs": needs, "__doc__": about}
    own = [(key, Any, declared) for key, declared in settings.items()]
    part = make_dataclass("Fitted", own, bases=(Logistic,), frozen=True, namespace=namespace)
    part.__module__ = "__main__"  # so that it counts as custom
    TRIGGERS.add(part)
    trigger: Logistic = part()
    return trigger
