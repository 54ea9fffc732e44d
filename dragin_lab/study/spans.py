"""``dl.Spans``: texts of a model, in which people or programs have labelled what is supported and
what is not.

``lab.judge(spans)`` forces each text on the lab's model and says how well each trigger tells the
two kinds apart. The gold reasonings of labelled questions are such texts (``Spans.of_labels``).
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.by_name import method
from dragin_lab.checks import flag, instance
from dragin_lab.checks import text as as_text
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trigger import TRIGGERS, find_missing
from dragin_lab.errors import DataError, SettingError
from dragin_lab.run.setup import Setup
from dragin_lab.study.labelled_rows import COLUMNS, Span, Text, read_span, read_texts_of_rows
from dragin_lab.study.statistics import roc_area, roc_interval
from dragin_lab.trace.trace import Draft, Prompt

PLACE = ["text", "start", "end", "words", "missing"]  # of a span, before its scores
# of Unicode, in which a tokenizer may give a text back
_READ_AS = ("", "NFC", "NFKC", "NFD", "NFKD")


@dataclass(repr=False)
class Spans:
    """Texts with the spans that are labelled in them, in the order in which they came."""

    texts: dict[Text, list[Span]] = field(default_factory=dict)

    @staticmethod
    def load(source: Any) -> Spans:
        """Spans from a file, a DataFrame, a data set (``hub:OWNER/NAME/CONFIG#SPLIT``), or
        dictionaries.

        A row is a span of ours (prompt, text, start, end, label, maybe chat), or a text of
        LongFact++ (github.com/obalcells/hallucination_probes), RAGTruth
        (github.com/ParticleMedia/RAGTruth) or PsiloQA (github.com/s-nlp/PsiloQA). The last two
        label what is not supported alone: there each word is a span, and supported where it is in
        none of them. A label that names its text is found by it, where that stands once.

        Annotations of LongFact++ that are nowhere in their text are left out with a warning, and so
        are spans with both labels. Raises ``DataError`` with the place, the field and what it must
        be.
        """
        spans, lost = Spans(), list[str]()
        for text, own, nowhere in read_texts_of_rows(source):
            spans._append(text, own)
            lost += nowhere
        if lost:
            warnings.warn(f"{len(lost)} labels are left out: {lost[0]}", stacklevel=2)
        if both := spans._drop_contradicted():
            warnings.warn(
                f"{both} spans are labelled as supported and as not supported: left out",
                stacklevel=2,
            )
        if not len(spans):
            raise DataError(
                f"{source if isinstance(source, str | Path) else type(source).__name__}: holds no"
                " span"
            )
        return spans

    @staticmethod
    def of_labels(labels: Iterable[Labelled], template: PromptTemplate) -> Spans:
        """The facts of gold reasonings, such as ``almanac.labels(...)``, each after its question's
        prompt.

        The closing "So the answer is …" belongs to the text, as a trigger looks at the whole draft.
        """
        texts = Spans()
        for one in labels:
            instance("label", one, Labelled, "give almanac.labels(...)")
            reasoning = f" {one.reasoning} So the answer is {one.answer}."
            spans = (Span(fact.start + 1, fact.end + 1, fact.missing) for fact in one.facts)
            texts._append(Text(template.render(one.question).text, reasoning), spans)
        return texts

    def add(
        self, prompt: str, text: str, start: int, end: int, label: str | bool, *, chat: bool = False
    ) -> None:
        """Add a span of a text. Raises ``SettingError`` for characters that are not there, and
        for another label.
        """
        as_text("prompt", prompt)
        spans = read_span(as_text("text", text), start, end, label, SettingError)
        key = Text(prompt, text, flag("chat", chat))
        if any(one._replace(missing=not one.missing) in self.texts.get(key, ()) for one in spans):
            raise SettingError(
                f"{text[start:end][:40]!r} has the other label already; a span has one label"
            )
        self._append(key, spans)

    def _append(self, text: Text, spans: Iterable[Span]) -> None:
        known = self.texts.get(text, [])
        if known := list(dict.fromkeys((*known, *spans))):
            self.texts[text] = known

    def _drop_contradicted(self) -> int:
        """Leave out the spans that have both labels; returns how many there were."""
        before = len(self)
        kept = {
            text: [one for one in own if one._replace(missing=not one.missing) not in own]
            for text, own in self.texts.items()
        }
        self.texts = {text: own for text, own in kept.items() if own}
        return (before - len(self)) // 2

    @property
    def frame(self) -> pd.DataFrame:
        """One row per span (pandas.DataFrame), which ``load`` reads: prompt, text, start, end,
        label, chat.
        """
        rows = [
            (
                one.prompt,
                one.text,
                span.start,
                span.end,
                ("supported", "not supported")[span.missing],
                one.chat,
            )
            for one, spans in self.texts.items()
            for span in spans
        ]
        return pd.DataFrame(rows, columns=COLUMNS)

    def __len__(self) -> int:
        return sum(map(len, self.texts.values()))

    def __repr__(self) -> str:
        missing = sum(span.missing for spans in self.texts.values() for span in spans)
        return f"Spans({len(self)} in {len(self.texts)} texts, {missing} not supported)"

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(max_rows=10, index=False))


@dataclass(frozen=True, repr=False)
class Judged:
    """Every trigger's score of every span.

    ``frame`` has one row per span (pandas.DataFrame): text (its number), start, end, words,
    missing, and a column for each trigger. ``views.roc(judged.frame, triggers=[...])`` draws it.
    """

    frame: pd.DataFrame

    @property
    def triggers(self) -> list[str]:
        """What the spans were scored by, custom triggers included."""
        return list(self.frame.columns[len(PLACE) :])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per trigger, the best first: ROC area with its 95 % interval over texts, and
        average precision.
        """
        from sklearn.metrics import average_precision_score

        missing, texts = self.frame["missing"].to_numpy(bool), self.frame["text"].tolist()

        def rate(name: str) -> tuple[str, float, float, float, float]:
            scores = self.frame[name].to_numpy(float)  # (m,)
            low, high = roc_interval(scores, missing, texts)
            average = (
                float(average_precision_score(missing, scores)) if missing.any() else float("nan")
            )
            return name, roc_area(scores, missing), low, high, average

        rows = pd.DataFrame(
            map(rate, self.triggers),
            columns=["trigger", "area", "low", "high", "average_precision"],
        )
        return rows.sort_values("area", ascending=False, ignore_index=True)

    def __repr__(self) -> str:
        missing = self.frame["missing"].sum()
        return (
            f"Judged({len(self.frame)} spans, {missing} not supported, by {len(self.triggers)}"
            " triggers)"
        )

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, float_format="{:.3f}".format))


def judge(setup: Setup, spans: Spans, *, nlp: Any = None) -> Judged:
    """Score every span by every trigger, with each text forced on the model after its prompt.

    A span's score is the largest over its tokens. ``nlp`` is a spaCy pipeline (None: the default);
    with one that finds entities ``entity`` is scored, too. Raises ``SettingError`` for an engine
    that cannot be given a text to read.
    """
    pipeline, rows = method("wo-rag", nlp=nlp).pipeline, []
    for number, one, own, draft in read_texts(setup.model, spans):
        scores = score_tokens(draft, pipeline)
        for span, inside in own:
            place = (number, span.start, span.end, one.text[span.start : span.end], span.missing)
            highest = {name: float(of[inside].max()) for name, of in scores.items()}
            rows.append(dict(zip(PLACE, place, strict=True)) | highest)
    return Judged(pd.DataFrame(rows))


def read_texts(
    lm: Any, spans: Spans
) -> Iterator[tuple[int, Text, list[tuple[Span, np.ndarray]], Draft]]:
    """Each text as the model reads it after its prompt: its number, and its spans with their
    tokens, (m,) int each.

    A tokenizer may compose a text (UAX 15). One that does not give it back, and spans without a
    token, are left out with a warning. Raises ``SettingError`` where nothing is left.
    """
    instance("spans", spans, Spans, "give dl.Spans.load(...)")
    if not callable(getattr(lm, "score", None)):
        raise SettingError(
            f"{lm!r} cannot be given a text to read; open the model by name to judge spans"
        )
    left_out, read = [], 0
    for number, (one, own) in enumerate(spans.texts.items()):
        chats = one.chat and lm.tokenizer.chats
        prompt = (
            Prompt(lm.tokenizer.chat([("user", one.prompt)]), special=False)
            if chats
            else Prompt(one.prompt)
        )
        draft = lm.score(prompt, one.text)
        body = one.text.strip()
        form = next((form for form in _READ_AS if _written(form, body) in draft.text), None)
        if form is None:
            left_out.append(
                f"text {number}, {one.text[:40]!r}, which the tokenizer does not give back as"
                " written"
            )
            continue
        lead, first, found = one.text.find(body), draft.text.find(_written(form, body)), []
        for span in own:
            a, b = (
                first + len(_written(form, body[: max(at - lead, 0)]))
                for at in (span.start, span.end)
            )
            # (m,) int
            inside = np.flatnonzero((draft.offsets[:, 0] < b) & (draft.offsets[:, 1] > a))
            if len(inside):
                found.append((span, inside))
            else:
                left_out.append(
                    f"characters {span.start} to {span.end} of {one.text[:40]!r}, which hold no"
                    " token"
                )
        if found:
            read += 1
            yield number, one, found, draft
    told = (
        f"{len(left_out)} left out: {'; '.join(left_out[:1])}; normalise these texts (NFC), or"
        " leave them out"
    )
    if left_out and not read:
        raise SettingError(f"no text can be judged; {told}")
    if left_out:
        warnings.warn(told, stacklevel=2)


def _written(form: str, text: str) -> str:
    return unicodedata.normalize(form, text) if form else text  # type: ignore[arg-type]


def score_tokens(draft: Draft, pipeline: Pipeline) -> dict[str, np.ndarray]:
    """What each registered trigger scores every token of a text, (n,) float64, if what it reads was
    captured.

    Scores of words and sentences stand on each of their tokens.
    """
    as_read, scores = draft.read_by(pipeline), {}
    for part in map(TRIGGERS.named, TRIGGERS):
        readable = pipeline.finds_entities or "entities" not in part.needs
        if part.judges_drafts() and readable and not find_missing(part.needs, draft):
            scores[part.name] = TRIGGERS.make(part, threshold=0.0).score_tokens(as_read)
    return scores
