"""What the released code computes on models after Llama 2: the section "Later models" of docs/paper-and-code.md.

    python -m tools.pages.later_models               draft, then write the section; resumed where it was stopped
    python -m tools.pages.later_models_page          the section alone, from the rows that are kept

SmolLM2-135M-Instruct, whose vocabulary is byte-level as Llama 3's and Qwen's are, writes the first draft of each
question. The released code then looks at it as it would with one space marker or another. What is kept of each
question stands in ``later_models.json``.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import spacy
from transformers.convert_slow_tokenizer import bytes_to_unicode

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.data import datasets
from dragin_lab.reference.dragin import ReferenceLoop
from dragin_lab.trace.trace import Continuation, Trace
from tools import real
from tools.pages.base import RUNS, Row, kept_rows, parser
from tools.pages.later_models_page import QUCO, TITLES, keep_rows

OUTPUT = RUNS / "real" / "later_models.jsonl"
QUESTIONS = 100  # of each
#: Tokens of a draft and words of a query, as the released configurations of Llama 2 7B have them.
SETTINGS = {"hotpotqa": (100, 35), "2wikimultihopqa": (64, 25)}
SPACE, NEWLINE = "Ġ", "Ċ"  # what a byte-level vocabulary writes for a space and the end of a line
_BYTES = {sign: byte for byte, sign in bytes_to_unicode().items()}


# -- how the released code reads a vocabulary -------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """A space marker, and what stands for each token's vocabulary string."""

    marker: str
    show: Callable[[Sequence[str]], list[str]] = list


def as_text(tokens: Sequence[str]) -> list[str]:
    """What tokens say, as text; a character of several tokens belongs to the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(bytes(_BYTES[sign] for sign in token)) for token in tokens]


def open_at_stops(tokens: Sequence[str]) -> list[str]:
    """A full stop as a token that begins a word: id 13 begins one in the released code, and is "." in Llama 3."""
    return ["▁." if token == "." else token for token in tokens]


READINGS = {
    "released": Reading("▁"),
    "llama3": Reading("▁", open_at_stops),
    "right": Reading(SPACE),
    "text": Reading(" ", as_text),
}


class ReadTokenizer:
    """A tokenizer whose vocabulary strings and space marker are those of a reading."""

    def __init__(self, tokenizer: Any, reading: Reading) -> None:
        self._tokenizer, self._reading, self.marker = tokenizer, reading, reading.marker

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """What the released code sees of the ids."""
        return self._reading.show(self._tokenizer.tokens(ids))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


# -- drafts and queries -----------------------------------------------------------------------------------------------


def describe_query(query: str, sent: str, text: str) -> Row:
    """What is wrong with a query that was made from ``text``, which holds end marks as the released code has them.

    ``glued``: a word of it holds the vocabulary's sign of a space or of a line's end. ``broken``: what is between such
    signs is not in the text, as letters stand for bytes. A query that is either is garbled.
    """
    parts = [part for word in query.split() for part in re.split(f"[{SPACE}{NEWLINE}]", word)]
    flags = {
        "empty": not query.strip(),
        "glued": SPACE in query or NEWLINE in query,
        "mark": "<|" in query,
        "mark_sent": "<|" in sent,
    }
    broken = [part[:24] for part in parts if part not in text][:2]
    return {name: True for name, flag in flags.items() if flag} | ({"broken": broken} if broken else {})


class Drafts:
    """SmolLM2, its first drafts, and what the released code makes of them in each reading."""

    def __init__(self) -> None:
        self.lm = dl.LanguageModel.load(real.language_model(), dtype="float32")
        self.pipeline: Pipeline = load_pipeline(spacy.load(real.ENGLISH.folder))
        folder = datasets.data_folder() / "passages"
        self.retriever = dl.BM25(dl.Corpus.load(folder / "psgs_w100.tsv.gz"))
        lines = (folder / "gold.jsonl").read_text(encoding="utf-8").splitlines()
        self.gold = {(row["dataset"], row["id"]): set(row["passages"]) for row in map(json.loads, lines)}

    def row(self, item: tuple[str, dl.Question]) -> Row:
        """One question: in each reading the draft's highest score, and its query where QuCo-RAG's θ fires."""
        benchmark, question = item
        length, words = SETTINGS[benchmark]
        template, gold = datasets.template(benchmark), self.gold[benchmark, question.id]
        draft = self.lm.generate(Write(template.render(question.text), length))
        attention = self.lm.attend(draft.ids.tolist())
        row: Row = {"benchmark": benchmark, "qid": question.id, "tokens": len(draft), "ended": draft.stopped}
        queries = {}
        for name, reading in READINGS.items():
            method = dl.method(
                "dragin", variant="reference", threshold=QUCO[benchmark], top_n=words, max_new_tokens=length,
                nlp=self.pipeline,
            )  # fmt: skip
            trace, tokenizer = Trace(question, method.settings), ReadTokenizer(self.lm.tokenizer, reading)
            loop = ReferenceLoop(method, trace, template, tokenizer)
            peak, query = self._look_back(loop, draft, attention)
            queries[name] = query
            row[name] = {"peak": round(peak, 4)}
            if query is not None:
                sent = loop.sendable(query)
                ids = {passage.id for passage in self.retriever.search(sent, 3)}
                row[name] |= describe_query(query, sent, f"{question.text} {draft.raw_text}")
                row[name]["recall"] = round(len(ids & gold) / len(gold), 4)
        return row | {"differs": queries["right"] != queries["text"]}

    def _look_back(self, loop: ReferenceLoop, draft: Continuation, attention: Any) -> tuple[float, str | None]:
        """The highest score of a draft, and the query where it fires."""
        rule = loop.method.trigger
        cut = loop.cut_draft(replace(draft, tokens=tuple(loop.tokenizer.tokens(draft.ids.tolist()))))
        _, decision, gap = loop.judge(cut, rule.read_attention(attention, cut), "")
        peak = max((peak for peak in decision.peaks if peak > 0), default=0.0)
        if gap is None:
            return peak, None
        episode = loop.method.formulator.query(gap)
        answer = None
        while True:
            try:
                answer = self.lm.attend(episode.send(answer).ids)
            except StopIteration as end:
                return peak, end.value.text


def read_rows(questions: int, output: Path) -> list[Row]:
    """One row a question, the benchmarks in turn; computed where they are not in ``output`` yet."""
    each = [[(name, question) for question in datasets.load(name, questions)] for name in TITLES]
    drafts = Drafts()
    return kept_rows(output, [item for pair in zip(*each, strict=True) for item in pair], drafts.row)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--questions", type=int, default=QUESTIONS, help="of each benchmark")
    options.add_argument("--output", type=Path, default=OUTPUT, help="the rows while they are computed")
    given = options.parse_args(arguments)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    keep_rows(read_rows(given.questions, given.output))


if __name__ == "__main__":
    main()
