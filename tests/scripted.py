"""A model that says what it is told to, and a tokenizer simple enough to follow by eye."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from dragin_lab.catalog.by_name import start_episode
from dragin_lab.core.episode import Attend, Request, Write
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.engines.engine import Engine, OnToken
from dragin_lab.trace.trace import Draft, Passage, Question, Trace

QUESTION = "Who made it?"
UNK, BOS, EOS, NEWLINE = 0, 1, 2, 13
_TOKEN = re.compile(
    r" (?=</?s>|<unk>|<\|)|<unk>|</?s>|<\|[a-z_]+\|>|\n| ?[^\W\d_]+| ?\d| ?[^\w\s]| ?_|\s"
)


class WordTokenizer:
    """Words, single digits and single marks, each with the space before it.

    ``marker="▁"`` behaves as SentencePiece vocabularies do (a text's first space is not there when
    it is decoded), ``"Ġ"`` as byte-level ones do (it is). ``eos`` is the end mark.
    """

    def __init__(self, marker: str = "▁", eos: str = "</s>") -> None:
        self.marker, self.chats, self.end_marks = marker, True, (eos,)
        self._strings = [
            "<unk>",
            "<s>",
            eos,
            *(f"<filler {i}>" for i in range(3, NEWLINE)),
            "<0x0A>" if marker == "▁" else "Ċ",
        ]
        self._ids = {token: i for i, token in enumerate(self._strings)}

    def cut(self, text: str) -> list[tuple[int, int, int]]:
        """The id and the character span of every token of a text, as it stands behind another
        text.
        """
        found = []
        for match in _TOKEN.finditer(text):
            string = (
                self._strings[NEWLINE] if match[0] == "\n" else match[0].replace(" ", self.marker)
            )
            if string not in self._ids:
                self._ids[string] = len(self._strings)
                self._strings.append(string)
            found.append((self._ids[string], *match.span()))
        return found

    def __len__(self) -> int:
        return len(self._strings)

    def encode_with_offsets(self, text: str) -> tuple[list[int], np.ndarray]:
        opening = (
            [] if self.marker != "▁" or text.startswith((" ", "\n", "<")) or not text else [" "]
        )
        cut = self.cut("".join(opening) + text)
        spans = np.array([(a, b) for _, a, b in cut], np.int32).reshape(-1, 2) - len(opening)
        return [BOS, *(i for i, _, _ in cut)], np.vstack([[(0, 0)], spans.clip(0)]).astype(np.int32)

    def encode(self, text: str, special: bool) -> list[int]:
        ids, _ = self.encode_with_offsets(text)
        return ids if special else ids[1:]

    def decode(self, ids: Sequence[int], special: bool) -> str:
        tokens = [self._strings[i] for i in ids if special or i not in (UNK, BOS, EOS)]
        text = "".join(tokens).replace(self._strings[NEWLINE], "\n").replace(self.marker, " ")
        return text.removeprefix(" ") if self.marker == "▁" else text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._strings[i] for i in ids]

    def chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """A chat template in which every turn is a line."""
        return "".join(f"{role}: {text}\n" for role, text in turns) + "assistant:"


@dataclass
class Say:
    """What the model says to one draft before it closes it, and what is measured on tokens, by
    text without space.
    """

    text: str
    entropy: dict[str, float] = field(default_factory=dict)  # else 0.1
    received: dict[str, float] = field(default_factory=dict)  # else 0.2
    doubt: dict[str, float] = field(default_factory=dict)  # 1 - p, else 0.01


class ScriptedModel(Engine):
    """Has what drivers use of a ``LanguageModel``; says the entries of ``script`` in turn, raises
    the exceptions.

    ``looks`` weighs tokens by their text: every position pays the ones before it in proportion (1
    where not named); "by>film" is what "by" alone pays "film".
    """

    name = "scripted"
    has_attention = has_hidden = True

    def __init__(
        self,
        script: Sequence[Say | BaseException],
        *,
        looks: dict[str, float] | None = None,
        marker: str = "▁",
        eos: str = "</s>",
        window: int | None = None,
    ) -> None:
        self.script = list(script)
        self.tokenizer = WordTokenizer(marker, eos)
        self.context_window = window
        self.looks = looks or {}
        self.drafts: list[Write] = []
        self.attended: list[str] = []

    @property
    def prompts(self) -> list[str]:
        """The prompts drafted behind so far."""
        return [draft.prompt.text for draft in self.drafts]

    def provenance(self) -> dict[str, Any]:
        return {"model": {"id": self.name}}

    def rows(self, ids: Sequence[int]) -> np.ndarray:
        """(n, n) float32 causal attention."""
        bare = [self._bare(i) for i in ids]
        weights = np.tile([self.looks.get(k, 1.0) for k in bare], (len(bare), 1))  # (n, n)
        for pair, weight in self.looks.items():
            q, paid, k = pair.partition(">")
            if paid:
                weights[np.ix_([one == q for one in bare], [one == k for one in bare])] = weight
        rows = np.tril(weights)
        return (rows / rows.sum(1, keepdims=True)).astype(np.float32)

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        self.attended.append(self.tokenizer.decode(ids, special=True))
        return self.rows(ids)[None]

    def _bare(self, token: int) -> str:
        return self.tokenizer.tokens([token])[0].replace(self.tokenizer.marker, "")

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        self.drafts.append(request)
        say = self.script.pop(0)
        if isinstance(say, BaseException):
            raise say
        ids = [*request.prefix, *(i for i, _, _ in self.tokenizer.cut(say.text)), EOS][
            : request.max_new_tokens
        ]
        prompt = self.tokenizer.encode_with_offsets(request.prompt.text)
        rows = self.rows([*prompt[0], *ids])  # (p + n, p + n)
        stopped, n = "", 0
        while not stopped:
            n += 1
            early = self._made(request, say, ids[:n], prompt, rows, rows_known=n - 1)
            stopped = request.stop.reached(early) or "length" * (n == request.max_new_tokens)
            stopped = "eos" if ids[n - 1] == EOS else stopped
            if watch is not None:
                watch(early)
        made = self._made(request, say, ids[:n], prompt, rows, rows_known=n)
        made.stopped, made.ended = stopped, True
        return made

    def _made(
        self,
        draft: Write,
        say: Say,
        ids: list[int],
        prompt: tuple[list[int], np.ndarray],
        all_rows: np.ndarray,
        *,
        rows_known: int,
    ) -> Draft:
        tokenizer, n = self.tokenizer, len(ids)
        prompt_ids, prompt_offsets = prompt
        p = len(prompt_ids)
        bare = [self._bare(i) for i in ids]
        ends = [0, *(len(tokenizer.decode(ids[: i + 1], special=False)) for i in range(n))]
        rows = all_rows[p - 1 : p + n, : p + n]  # (n + 1, p + n)
        seen = [say.received.get(b, 0.2) if i < rows_known - 1 else 0.0 for i, b in enumerate(bare)]
        probability = 1 - np.array([say.doubt.get(b, 0.01) for b in bare])
        # each token looks at the one before it
        among = np.diag([say.received.get(b, 0.2) for b in bare[:-1]], -1)
        return Draft(
            prompt_ids=np.array(prompt_ids, np.int32),
            prompt_offsets=prompt_offsets,
            ids=np.array(ids, np.int32),
            pieces=tuple(tokenizer.tokens(ids)),
            text=tokenizer.decode(ids, special=False),
            raw_text=tokenizer.decode(ids, special=True),
            offsets=np.array(list(itertools.pairwise(ends)), np.int32).reshape(-1, 2),
            entropy=np.array([say.entropy.get(b, 0.1) for b in bare], np.float32),
            logprob=np.log(probability).astype(np.float32),
            alternative_ids=np.stack([ids, [UNK] * n], 1).astype(np.int32),
            alternative_probs=np.stack([probability, 1 - probability], 1).astype(np.float32),
            received=np.array(seen, np.float32),
            rows=rows[None].astype(np.float16) if draft.attention else None,
            ended=False,
            among=among[np.tril_indices(n)].astype(np.float32) if draft.among else None,
            states=probability.astype(np.float32)[:, None] if draft.hidden is not None else None,
        )


class Parrot(Engine):
    """Says the same to every prompt, doubts every name, and looks back at all words alike."""

    name, has_attention = "parrot", True

    def __init__(self, says: str = " It is by Bo Ek. So the answer is Bo Ek.") -> None:
        self.tokenizer = WordTokenizer()
        self.says = [i for i, _, _ in self.tokenizer.cut(says)]
        self.encode = cache(self.tokenizer.encode_with_offsets)  # a draft is measured at each token

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        ids = [*request.prefix, *self.says[len(request.prefix) :], EOS][: request.max_new_tokens]
        for n in range(1, len(ids) + 1):
            draft = self.measure(request, ids[:n])
            stopped = (
                "eos"
                if ids[n - 1] == EOS
                else request.stop.reached(draft) or "length" * (n == len(ids))
            )
            if watch is not None:
                watch(draft)
            if stopped:
                break
        return replace(draft, stopped=stopped, ended=True)

    def measure(self, request: Write, ids: list[int]) -> Draft:
        n, pieces = len(ids), self.tokenizer.tokens(ids)
        ends = [0, *(len(self.tokenizer.decode(ids[: i + 1], special=False)) for i in range(n))]
        prompt_ids, prompt_offsets = self.encode(request.prompt.text)
        sure = np.array([0.2 if piece.strip("▁").istitle() else 0.9 for piece in pieces])
        rows = None
        if request.attention:
            rows = self.attend([*prompt_ids, *ids])[:, len(prompt_ids) - 1 :]
        return Draft(
            np.array(ids),
            self.tokenizer.decode(ids, special=False),
            np.array(list(pairwise(ends))),
            tuple(pieces),
            self.tokenizer.decode(ids, special=True),
            np.array(prompt_ids),
            prompt_offsets,
            entropy=1 - sure,
            logprob=np.log(sure),
            alternative_ids=np.array([[i, 0] for i in ids]),
            received=np.full(n, 0.5),
            alternative_probs=np.stack([sure, 1 - sure], 1),
            rows=rows,
            ended=False,
            among=np.full(n * (n + 1) // 2, 0.5, np.float32) if request.among else None,
        )

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        return (
            np.tril(np.ones((1, len(ids), len(ids)), np.float32))
            / np.arange(1, len(ids) + 1)[:, None]
        )


class ScriptedRetriever:
    """Finds the same passages for every query, at most k; raises what stands in their place."""

    def __init__(self, *texts: str | Exception) -> None:
        self.texts = texts or ("First passage.", "Second passage.", "Third passage.")
        self.queries: list[str] = []

    def provenance(self) -> dict[str, Any]:
        return {"kind": "ScriptedRetriever"}

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append(query)
        for text in self.texts:
            if isinstance(text, Exception):
                raise text
        return [
            Passage(str(i), "title", str(text), 1 / (i + 1))
            for i, text in enumerate(self.texts[:k])
        ]


@dataclass
class Driven:
    """An episode that was driven by hand, and everything it was given."""

    trace: Trace
    lm: ScriptedModel
    retriever: ScriptedRetriever

    @property
    def queries(self) -> list[str]:
        return [step.query.text for step in self.trace.steps if step.query is not None]


def drive(
    method: Method,
    *script: Say | BaseException,
    question: str = QUESTION,
    golds: tuple[str, ...] = (),
    passages: Sequence[str | Exception] = (),
    template: PromptTemplate = PromptTemplate(),  # noqa: B008 - frozen
    looks: dict[str, float] | None = None,
    marker: str = "▁",
    eos: str = "</s>",
    window: int | None = None,
    retriever: ScriptedRetriever | None = None,
    all_asked: bool = True,
) -> Driven:
    """Run an episode on scripted answers, one request after the other; ``all_asked`` insists
    that none is left.
    """
    lm = ScriptedModel(script, looks=looks, marker=marker, eos=eos, window=window)
    retriever = retriever or ScriptedRetriever(*passages)
    trace = Trace(Question("q", question, golds), method.settings)
    asked = start_episode(method, trace, template, lm.tokenizer, window=window)
    answer: Any = None
    while True:
        try:
            request: Request = asked.send(answer)
        except StopIteration:
            break
        if isinstance(request, Write):
            answer = lm.write(request)
        elif isinstance(request, Attend):
            answer = lm.attend(request.ids)
        else:
            answer = retriever.search(request.query, request.k)
    assert not (all_asked and lm.script), f"{len(lm.script)} answers were not asked for"
    return Driven(trace, lm, retriever)
