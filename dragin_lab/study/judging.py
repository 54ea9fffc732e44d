"""How well each trigger tells the labelled spans of texts apart: the texts are forced on a model and scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.catalog.methods import method
from dragin_lab.checks import instance
from dragin_lab.core.clock import EveryN, EverySentence
from dragin_lab.core.needs import find_missing
from dragin_lab.core.scores import doubts, pool_words
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.errors import SettingError
from dragin_lab.reference.measures import assign_tokens, assign_words, merge_words, receive_attention, score_words
from dragin_lab.run.lab import Lab
from dragin_lab.study.spans import Span, Spans, Text
from dragin_lab.study.statistics import bootstrap_groups, roc_area
from dragin_lab.trace.trace import Draft, Prompt

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.engines.load import LanguageModel

PLACE = ["text", "start", "end", "words", "missing"]  # of a span, before its scores
#: These fire at a place, whatever the model thinks: a span counts as looked up when the place lies between the start of
#: its sentence and its own end.
CLOCKS = (EverySentence.name, EveryN.name)
EVERY = 16  # tokens between two strikes of the clock ``every-n``


@dataclass(frozen=True, repr=False)
class Judged:
    """Every trigger's score of every span.

    ``frame`` has one row per span (pandas.DataFrame): text (its number), start, end, words, missing, and a column for
    each trigger. ``views.roc(judged.frame, triggers=[...])`` draws it.
    """

    frame: pd.DataFrame

    @property
    def triggers(self) -> list[str]:
        """Everything that the spans were scored by, custom triggers included."""
        return list(self.frame.columns[len(PLACE) :])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per trigger, the best first: ROC area with its 95 % interval over texts, and average precision."""
        import pandas as pd
        from sklearn.metrics import average_precision_score

        missing, texts = self.frame["missing"].to_numpy(bool), self.frame["text"].tolist()

        def rate(name: str) -> tuple[str, float, float, float, float]:
            scores = self.frame[name].to_numpy(float)  # (m,)
            low, high = bootstrap_groups(lambda at: roc_area(scores[at], missing[at]), texts)
            average = float(average_precision_score(missing, scores)) if missing.any() else float("nan")
            return name, roc_area(scores, missing), low, high, average

        rows = pd.DataFrame(map(rate, self.triggers), columns=["trigger", "area", "low", "high", "average_precision"])
        return rows.sort_values("area", ascending=False, ignore_index=True)

    @property
    def left_out(self) -> dict[str, str]:
        """The triggers of drafts without a score, and why: what they read is not captured for these texts."""
        reasons = {}
        for name in TRIGGERS.names():
            part = TRIGGERS.named(name)
            missing = [need for need in part.needs if need != "received"]
            if part.judges_drafts() and missing and name not in self.triggers:
                reasons[name] = f"reads {'hidden states' if 'hidden' in missing[0] else missing[0]}"
        return reasons

    def __repr__(self) -> str:
        missing = self.frame["missing"].sum()
        return f"Judged({len(self.frame)} spans, {missing} not supported, by {len(self.triggers)} triggers)"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, float_format="{:.3f}".format))


def judge(lab: Lab, spans: Spans, *, nlp: Any = None) -> Judged:
    """Score every span by every trigger, with each text forced on the lab's model after its prompt.

    A span's score is the largest over its tokens; of a clock, over its sentence up to the span's end. ``nlp`` is a
    spaCy pipeline (None: the default); with one that finds entities ``entity`` is scored, too. Raises ``SettingError``
    for an engine that cannot be given a text to read.
    """
    import pandas as pd

    pipeline, rows = method("wo-rag", nlp=nlp).pipeline, []
    for number, (one, own, draft, lead) in enumerate(read_texts(lab, spans)):
        scores = score_tokens(lab.model, draft, pipeline)
        sentences = pipeline.spans(draft.text)
        for span in own:
            inside = tokens_of(draft, span.start + lead, span.end + lead)
            if not len(inside):
                raise SettingError(
                    f"characters {span.start} to {span.end} of {one.text[:40]!r} hold no token; leave them out"
                )
            first, last = next(((a, b) for a, b in sentences if b > span.start + lead), (len(draft.text),) * 2)
            sentence = tokens_of(draft, min(first, span.start + lead), last)
            before = sentence[sentence <= inside.max()]
            place = (number, span.start, span.end, one.text[span.start : span.end], span.missing)
            peaks = {name: float(of[before if name in CLOCKS else inside].max()) for name, of in scores.items()}
            rows.append(dict(zip(PLACE, place, strict=True)) | peaks)
    return Judged(pd.DataFrame(rows))


def read_texts(lab: Lab, spans: Spans) -> Iterator[tuple[Text, list[Span], Draft, int]]:
    """Each text as the model reads it after its prompt, and how many characters further its spans stand there."""
    instance("spans", spans, Spans, "give dl.Spans.load(...)")
    lm = lab.model
    if not callable(getattr(lm, "score", None)):
        raise SettingError(f"{lm!r} cannot be given a text to read; open the model by name to judge spans")
    for one, own in spans.texts.items():
        chats = one.chat and lm.tokenizer.chats
        prompt = Prompt(lm.tokenizer.chat([("user", one.prompt)]), special=False) if chats else Prompt(one.prompt)
        draft = lm.score(prompt, one.text)
        body = one.text.strip()
        if body not in draft.text:
            raise SettingError(f"the tokenizer does not give {one.text[:40]!r} back as it was written")
        yield one, own, draft, draft.text.find(body) - one.text.find(body)


def tokens_of(draft: Draft, start: int, end: int) -> np.ndarray:
    """The tokens that hold some of the characters [start, end) of the text; (m,) int."""
    return np.flatnonzero((draft.offsets[:, 0] < end) & (draft.offsets[:, 1] > start))


def score_tokens(lm: LanguageModel, draft: Draft, pipeline: Pipeline) -> dict[str, np.ndarray]:
    """Every trigger's score of every token of a text, each (n,) float64, as far as what it reads was captured.

    Scores of words and sentences stand on each of their tokens. Beside the registered triggers there is what the
    released code scores: RIND and its attention alone by words, without the prompt in view (``rind-reference``,
    ``attention-reference``); 1 - p of the likeliest token, whatever was written (``probability-first``); FLARE's mean
    1 - p of the sentence (``probability-sentence``).
    """
    n, ids, doubt = len(draft), draft.ids.tolist(), doubts(draft.logprob)  # (n,)
    words = merge_words(draft.pieces, ids, lm.tokenizer.marker)
    sentences = pipeline.split(draft.raw_text)
    ranges = assign_words(sentences, [word.text for word in words])
    received = receive_attention(lm.attend(ids), first_is_eos=draft.pieces[0] == "</s>")  # (n,)
    attended = pool_words(received, words, "sum")  # (w,)
    entropy = pool_words(draft.entropy.astype(np.float64), words, "mean")  # (w,)

    def on_tokens(by_sentence: Sequence[np.ndarray]) -> np.ndarray:
        by_token = np.zeros(n)
        for (first, last), inside in zip(ranges, by_sentence, strict=True):
            for word, score in zip(words[first:last], inside, strict=True):
                by_token[word.start : word.stop] = score
        return by_token

    mean_doubt, starts, clock = (np.zeros(n) for _ in range(3))
    decoded = [lm.tokenizer.decode([i], special=True) for i in ids]
    for first, last in assign_tokens(sentences, decoded):
        mean_doubt[first:last] = doubt[first:last].mean() if last > first else 0.0
    for start, end in pipeline.spans(draft.text):
        starts[tokens_of(draft, start, end)[:1]] = 1.0
    clock[::EVERY] = 1.0
    scores = {
        "rind-reference": on_tokens(score_words(attended, entropy, ranges)),
        "attention-reference": on_tokens(score_words(attended, np.ones(len(words)), ranges)),
        "probability-first": 1.0 - draft.alternative_probs[:, 0].astype(np.float64),
        "probability-sentence": mean_doubt,
        EverySentence.name: starts,
        EveryN.name: clock,
    }
    as_read = draft.read_by(pipeline)
    for part in map(TRIGGERS.named, TRIGGERS.names()):
        readable = pipeline.finds_entities or "entities" not in part.needs
        if part.judges_drafts() and readable and not find_missing(part.needs, draft):
            scores[part.name] = TRIGGERS.make(part, threshold=0.0).score_tokens(as_read)
    return scores
