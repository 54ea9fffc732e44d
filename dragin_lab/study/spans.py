"""``dl.Spans``: texts of a model, in which people or programs have labelled what is supported and what is not.

``lab.judge(spans)`` forces each text on the lab's model, scores every span by every trigger, and says how well each
tells the two kinds apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.methods import method
from dragin_lab.checks import flag, instance, shown
from dragin_lab.checks import text as as_text
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.data import tabular
from dragin_lab.data.tabular import Placed
from dragin_lab.errors import DataError, SettingError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.study.needs import (
    Item,
    gather_scores,
    left_out,
    score_tokens,
    sentence_at,
    tokens_of,
    triggers_of,
    when_table,
)
from dragin_lab.trace.trace import Draft, Prompt

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.run.lab import Lab

#: What a label may be called, in small letters: by LongFact++ (arXiv 2509.03531) also in short, and by 0 and 1.
LABELS = {
    **dict.fromkeys(("supported", "s", "0", "false"), False),
    **dict.fromkeys(("not supported", "ns", "insufficient information", "1", "true"), True),
}
_UNLABELLED = ("n/a", "none", "")
_REMEDY = "give 'supported' or 'not supported'"
_FORMS = (
    "prompt, text, start, end, label; or those of LongFact++ (conversation, annotations), RAGTruth (response, labels, "
    "with prompt or source_info.jsonl beside it) or PsiloQA (question, llm_answer, labels)"
)


class Span(NamedTuple):
    """Half-open characters of a text, and whether they are not supported: what the model could not know."""

    start: int
    end: int
    missing: bool


@dataclass(frozen=True)
class SpannedText:
    """A text that was written after a prompt, and its spans. ``chat``: the prompt is a user's turn of a chat."""

    prompt: str
    text: str
    spans: tuple[Span, ...]
    chat: bool = False


@dataclass(repr=False)
class Spans:
    """Texts with labelled spans, in the order in which they came."""

    texts: list[SpannedText] = field(default_factory=list)
    _places: dict[tuple[str, str, bool], int] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        self._places |= {(one.prompt, one.text, one.chat): place for place, one in enumerate(self.texts)}

    @staticmethod
    def load(source: Any) -> Spans:
        """Spans from a file, a DataFrame, a data set (``hub:OWNER/NAME/CONFIG#SPLIT``), or dictionaries.

        A row is a span of ours (prompt, text, start, end, label, maybe chat), or a text of LongFact++
        (github.com/obalcells/hallucination_probes), RAGTruth (github.com/ParticleMedia/RAGTruth) or PsiloQA
        (github.com/s-nlp/PsiloQA). The last two label what is not supported alone: there each word is a span, and
        supported where it is in none of them. Raises ``DataError`` with the place, the field and what it must be.
        """
        spans, rows = Spans(), tabular.read_rows(source)
        prompts = _read_prompts(source)
        for placed in rows:
            record = placed.record
            if "annotations" in record and "conversation" in record:
                spans._append(_read_longfact(placed))
            elif "response" in record or "llm_answer" in record:
                spans._append(_read_unsupported(placed, prompts))
            else:
                spans._append(_read_own(placed))
        if not len(spans):
            raise DataError(f"{source if isinstance(source, str | Path) else type(source).__name__}: holds no span")
        return spans

    @staticmethod
    def of_labels(labels: Iterable[Labelled], template: PromptTemplate) -> Spans:
        """The facts of gold reasonings, such as ``almanac.labels(...)``, each after its question's prompt."""
        texts = Spans()
        for one in labels:
            instance("label", one, Labelled, "give almanac.labels(...)")
            spans = tuple(Span(fact.start + 1, fact.end + 1, fact.missing) for fact in one.facts)
            reasoning = f" {one.reasoning} So the answer is {one.answer}."
            texts._append(SpannedText(template.render(one.question).text, reasoning, spans))
        return texts

    def add(self, prompt: str, text: str, start: int, end: int, label: str | bool, *, chat: bool = False) -> None:
        """Add a span of a text. Raises ``SettingError`` for characters that are not there, and for another label."""
        as_text("prompt", prompt)
        missing = _read_label("label", label, SettingError)
        span = _check_span(as_text("text", text), start, end, missing, SettingError, "")
        if span is not None:
            self._append(SpannedText(prompt, text, (span,), flag("chat", chat)))

    def _append(self, one: SpannedText) -> None:
        """Add the spans of a text; those of a text that is there already go to it."""
        place = self._places.setdefault((one.prompt, one.text, one.chat), len(self.texts))
        if place == len(self.texts):
            self.texts.append(one)
        spans = dict.fromkeys((*self.texts[place].spans, *one.spans))
        self.texts[place] = replace(one, spans=tuple(spans))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per span (pandas.DataFrame): prompt, text, start, end, label, chat."""
        import pandas as pd

        rows = [
            (one.prompt, one.text, span.start, span.end, ("supported", "not supported")[span.missing], one.chat)
            for one in self.texts
            for span in one.spans
        ]
        return pd.DataFrame(rows, columns=["prompt", "text", "start", "end", "label", "chat"])

    def save(self, path: str | Path) -> Path:
        """Write JSON lines that ``load`` reads. Raises ``SettingError`` where the file cannot be written."""
        path = as_path(path)
        lines = (json.dumps(row, ensure_ascii=False) for row in self.frame.to_dict("records"))
        try:
            write_whole(path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise SettingError(not_saved(path, error)) from error
        return path

    def __len__(self) -> int:
        return sum(len(one.spans) for one in self.texts)

    def __iter__(self) -> Iterator[SpannedText]:
        return iter(self.texts)

    def __repr__(self) -> str:
        missing = sum(span.missing for one in self.texts for span in one.spans)
        return f"Spans({len(self)} in {len(self.texts)} texts, {missing} not supported)"

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(max_rows=10, index=False))


# -- judging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Judged:
    """Every trigger's score of every span."""

    items: list[Item]
    places: list[tuple[int, int, int, str]]  # of each: its text, its characters, its words

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per span: text (its number), start, end, words, missing, and a column for each trigger.

        ``views.roc(judged.frame, triggers=[...])`` draws it.
        """
        import pandas as pd

        places = pd.DataFrame(self.places, columns=["text", "start", "end", "words"])
        scores = pd.DataFrame([item.scores for item in self.items])
        return pd.concat([places, pd.Series([item.missing for item in self.items], name="missing"), scores], axis=1)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per trigger, the best first: ROC area with its 95 % interval over texts, and average precision."""
        import pandas as pd

        rows = pd.DataFrame(when_table(self.items, {}))
        return rows.sort_values("area", ascending=False, ignore_index=True)[
            ["trigger", "area", "low", "high", "average_precision"]
        ]

    @property
    def left_out(self) -> dict[str, str]:
        """The triggers without a score, and why."""
        return left_out(self.items)

    def __repr__(self) -> str:
        missing = sum(item.missing for item in self.items)
        return f"Judged({len(self.items)} spans, {missing} not supported, by {len(triggers_of(self.items))} triggers)"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, float_format="{:.3f}".format))


def judge(lab: Lab, spans: Spans, *, nlp: Any = None) -> Judged:
    """Score every span by every trigger, with each text forced on the lab's model after its prompt.

    A span's score is the largest over its tokens; of a clock, over its sentence up to the span's end. ``nlp`` is a
    spaCy pipeline (None: the default); with one that finds entities ``entity`` is scored, too. Raises ``SettingError``
    for an engine that cannot be given a text to read.
    """
    pipeline = method("wo-rag", nlp=nlp).pipeline
    items, places = [], []
    for number, (one, draft, lead) in enumerate(read_texts(lab, spans)):
        scores = score_tokens(lab.model, draft, pipeline)
        sentences = pipeline.spans(draft.text)
        for span in one.spans:
            start, end = span.start + lead, span.end + lead
            value = tokens_of(draft, start, end)
            if not len(value):
                raise SettingError(
                    f"characters {span.start} to {span.end} of {one.text[:40]!r} hold no token; leave them out"
                )
            at_span = gather_scores(scores, value, sentence_at(draft, sentences, start))
            items.append(Item(str(number), "", span.missing, at_span))
            places.append((number, span.start, span.end, one.text[span.start : span.end]))
    return Judged(items, places)


def read_texts(lab: Lab, spans: Spans) -> Iterator[tuple[SpannedText, Draft, int]]:
    """Each text as the model reads it after its prompt, and how many characters further its spans stand there."""
    instance("spans", spans, Spans, "give dl.Spans.load(...)")
    lm = lab.model
    if not callable(getattr(lm, "score", None)):
        raise SettingError(f"{lm!r} cannot be given a text to read; open the model by name to judge spans")
    for one in spans:
        chats = one.chat and lm.tokenizer.chats
        prompt = Prompt(lm.tokenizer.chat([("user", one.prompt)]), special=False) if chats else Prompt(one.prompt)
        draft = lm.score(prompt, one.text)
        body = one.text.strip()
        lead = draft.text.find(body) - one.text.find(body)
        if body not in draft.text:
            raise SettingError(f"the tokenizer does not give {one.text[:40]!r} back as it was written")
        yield one, draft, lead


# -- rows -------------------------------------------------------------------------------------------------------------


def _read_own(placed: Placed) -> SpannedText:
    record, place = placed.record, placed.place
    for name in ("prompt", "text", "start", "end", "label"):
        if name not in record:
            raise DataError(f"{place}: has no {name}; a row has {_FORMS}")
    body = tabular.text_of(placed, "text", record["text"])
    missing = _read_label(f"{place}: label", record["label"], DataError)
    span = _check_span(body, record["start"], record["end"], missing, DataError, f"{place}: ")
    prompt, chat = tabular.text_of(placed, "prompt", record["prompt"]), str(record.get("chat", "")).lower() == "true"
    return SpannedText(prompt, body, () if span is None else (span,), chat)


def _read_longfact(placed: Placed) -> SpannedText:
    """A chat's last two turns; an annotation names its text and where that stands."""
    turns = list(placed.record["conversation"])
    body, spans = turns[-1]["content"], []
    for one in placed.record["annotations"]:
        if one is None or not isinstance(one.get("index"), int) or not one.get("span"):
            continue
        missing = _read_label(f"{placed.place}: label", one.get("label"), DataError)
        start, end = one["index"], one["index"] + len(one["span"])
        if body[start:end] == one["span"] and missing is not None:
            spans.append(Span(start, end, missing))
    return SpannedText(turns[-2]["content"], body, tuple(dict.fromkeys(spans)), chat=True)


def _read_unsupported(placed: Placed, prompts: Mapping[str, str]) -> SpannedText:
    """A text in which what is not supported is labelled: each of its words is a span."""
    record, place = placed.record, placed.place
    body = tabular.text_of(placed, "text", record.get("response", record.get("llm_answer")))
    prompt = record.get("prompt", record.get("question", prompts.get(str(record.get("source_id")))))
    if not isinstance(prompt, str):
        raise DataError(f"{place}: has no prompt, and none is beside it in source_info.jsonl for its source_id")
    labels = record.get("labels")
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise DataError(f"{place}: labels {shown(labels)}: give a list of spans")
    pairs = [(one["start"], one["end"]) if isinstance(one, Mapping) else tuple(one) for one in labels]
    words = (match.span() for match in re.finditer(r"\S+", body))
    spans = tuple(Span(a, b, any(a < end and start < b for start, end in pairs)) for a, b in words)
    return SpannedText(prompt, body, spans, chat=True)


def _read_prompts(source: Any) -> dict[str, str]:
    """RAGTruth's prompts by source, from the file beside its responses."""
    beside = as_path(source, DataError).parent / "source_info.jsonl" if isinstance(source, str | Path) else None
    if beside is None or not beside.is_file():
        return {}
    return {str(row.record["source_id"]): str(row.record["prompt"]) for row in tabular.read_json_lines(beside)}


def _read_label(name: str, label: Any, error: type[Exception]) -> bool | None:
    """Whether a label says "not supported"; None for one that says nothing."""
    called = str(label).strip().lower()
    if called in _UNLABELLED:
        return None
    if called not in LABELS:
        raise error(f"{name}={shown(label)} is not a label; {_REMEDY}")
    return LABELS[called]


def _check_span(
    body: str, start: Any, end: Any, missing: bool | None, error: type[Exception], where: str
) -> Span | None:
    """A span of a text; None where it has no label."""
    try:
        a, b = int(start), int(end)
    except (TypeError, ValueError, OverflowError):
        a, b = 0, 0
    if not 0 <= a < b <= len(body) or not body[a:b].strip():
        raise error(
            f"{where}start={shown(start)}, end={shown(end)}: the text has characters 0 to {len(body)}, end excluded; "
            "give some of them that are not all white space"
        )
    return None if missing is None else Span(a, b, missing)
