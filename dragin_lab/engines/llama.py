"""``LlamaModel``: a GGUF file in llama.cpp, in this process, measured on what llama.cpp
computes.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig

from dragin_lab.checks import count, shown
from dragin_lab.core.episode import Write
from dragin_lab.engines import llama_context
from dragin_lab.engines.check import TEXTS, Check, apply_checks
from dragin_lab.engines.engine import Batch, DraftResult, Engine, Facts, OnToken
from dragin_lab.engines.identity import (
    Probed,
    hash_weights,
    probe_ids,
    reduce_logits,
    write_probe,
)
from dragin_lab.engines.layers import choose_captured, choose_heads, choose_layer, describe_layer
from dragin_lab.engines.llama_context import Computed, LlamaContext
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.engines.writing import PARTS, Writing, find_ends, measure_logits
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft


class LlamaModel(Engine):
    """A GGUF file in llama.cpp, in this process. Threads may share it; a fork may not.

    Args:
        file: the GGUF file. tokenizer: the file's own or that of its folder; llama.cpp's tokenizer
            is not used. config: of the model in transformers, where it is known; "last" is then the
            same layer as there. layer, heads, alternatives, sample, check: as for
            ``LanguageModel.load``; what is sampled is drawn from the
            whole distribution, at temperature 1.
        dtype: of the cache of keys and values, "float16" or "float32".
        threads: that it computes on; by default as many as torch takes.
        context: tokens of prompt and text; by default 4,096, or what the model was made for.
        attention: False reads by flash attention, which is faster and gives no rows.

    ``no_attention`` says why no rows can be captured. Raises as ``LlamaContext``, and
    ``ModelError`` for a tokenizer of another vocabulary, and a layer or head that the model does
    not have.
    """

    parts = PARTS
    context_window: int
    tokenizer: HFTokenizer

    def __init__(
        self,
        file: Path,
        tokenizer: HFTokenizer,
        config: Any = None,
        *,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        check: bool = True,
        dtype: str = "float16",
        threads: int | None = None,
        context: int | None = None,
        attention: bool = True,
    ) -> None:
        self.name = file.name
        self.tokenizer = tokenizer
        self.sample = sample
        self.file = file
        threads = torch.get_num_threads() if threads is None else count("threads", threads)
        window = None if context is None else count("context", context)
        # One sequence for drafts, the last one for ``attend``.
        self.context = LlamaContext(
            file, threads=threads, window=window, dtype=dtype, sequences=2, rows=attention
        )
        self.context_window = self.context.window
        self.eos = tokenizer.ends
        self.alternatives = min(count("alternatives", alternatives), self.context.vocabulary)
        self.lock = threading.RLock()
        self.close = self.context.close
        config = config or PretrainedConfig.from_dict({"num_hidden_layers": self.context.layers})
        names = self.context.names
        having = [i for i in range(self.context.layers) if f"{llama_context.ROWS}-{i}" in names]
        kind = f"llama.cpp's {self.context.architecture}"
        self.config = config
        self.no_attention = "" if having else f"{kind} has no node {llama_context.ROWS}"
        if not attention:
            self.no_attention = "it was opened with attention=False"
        if self.no_attention and layer != "last":
            raise ModelError(f"layer={layer}: {self.no_attention}; leave it out")
        self.layer = choose_captured(config, layer, having, kind) if having else None
        self.layer_chosen = None if self.layer is None else describe_layer(config, self.layer)
        self.has_attention = bool(having)
        self.has_hidden = "result_norm" in names
        self.heads = choose_heads(heads, self.context.heads)
        self._hash = ""
        if check:
            apply_checks(self, self.check())

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        """As ``Engine.write``. Raises ``ModelError`` for a draft that does not fit."""
        writing = self.begin(request, seed, watch)
        while not writing.complete:
            self.advance({0: writing})
        return writing.finish()

    def batch(self, size: int) -> LlamaBatch:
        return LlamaBatch(self, size)

    def begin(self, request: Write, seed: int | None, watch: OnToken | None = None) -> Writing:
        """A draft without tokens yet; its ``cache`` lists the pieces in which its text is read."""
        writing = Writing(self, request, seed, watch)
        ids = writing.prompt_ids
        ends = find_ends(request.prompt, writing.prompt_offsets, self.parts)
        pieces = pairwise([0, *ends, len(ids)])
        writing.cache = [tuple(ids[begin:end]) for begin, end in pieces]
        return writing

    def advance(self, beside: Mapping[int, Writing]) -> None:
        """Run one forward of some drafts (by sequence), and add the token that each writes."""
        asked = {draft.state for draft in beside.values()} - {None}
        with self.lock:
            texts = {sequence: draft.cache for sequence, draft in beside.items()}
            answers = self.context.read(texts, self.layer, sorted(asked))
        for draft, computed in zip(beside.values(), answers, strict=True):
            draft.reused = draft.reused if draft.forwards else computed.kept
            draft.forwards += 1
            if computed.rows is not None:
                rows = computed.rows if self.heads is None else computed.rows[self.heads]
                draft.add_row(rows.mean(0), rows)
            if not draft.stopped:
                self._add_token(draft, computed)

    def _add_token(self, draft: Writing, computed: Computed) -> None:
        """Choose a draft's next token; an error of its ``Stop`` ends this draft alone."""
        scores = computed.logits.clone() if draft.request.bias else computed.logits
        for ids, value in draft.biases(len(draft.ids)):
            scores[ids] += value
        chosen = draft.choose(scores)
        token = int(scores.argmax() if chosen is None else chosen)
        measured = measure_logits(computed.logits[None], torch.tensor([token]), self.alternatives)
        draft.cache.append((token,))
        values = [part[0].numpy() for part in measured]
        try:
            draft.add_token(token, values, state=computed.states.get(draft.state))
        except Exception as error:  # noqa: BLE001 - ends this draft alone
            draft.error = error

    def find_state(self, layer: int | str) -> str:
        """The node with a layer's hidden states; the last layer's are normed, as in
        transformers.
        """
        number = choose_layer(self.config, layer) if layer != "last" else self.context.layers - 1
        node = "result_norm" if number == self.context.layers - 1 else f"l_out-{number}"
        if node not in self.context.names:
            raise ModelError(
                f"{self.name}: llama.cpp's {self.context.architecture} has no hidden states {node}"
            )
        return node

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """The attention map of some ids by themselves: (h, n, n) float32. Raises ``ModelError``
        where there is none.
        """
        if self.layer is None:
            raise ModelError(f"{self.name} has no attention: {self.no_attention}")
        self.refuse_overrun(len(ids), 0)
        chosen = list(range(self.context.heads)) if self.heads is None else self.heads
        if not len(ids):
            return np.zeros((len(chosen), 0, 0), np.float32)
        with self.lock:
            return self.context.read_map(ids, self.layer)[chosen]

    def check(self) -> list[Check]:
        """Whether the vocabulary names ids as the tokenizer does, and rows see no later token
        and sum to at most 1.
        """
        C = self.context.bindings
        vocabulary = self.context.vocabulary
        ids = sorted(self.eos.union(*(self.tokenizer.encode(text, True) for text in TEXTS)))
        # A file may write a space where the tokenizer writes its mark for one (conversions of Gemma
        # 3).
        marker = self.tokenizer.marker or " "
        wrong = []
        for i, token in zip(ids, self.tokenizer.tokens(ids), strict=True):
            known = i < vocabulary
            name = C.llama_vocab_get_text(self.context.vocab, i).decode() if known else ""
            if name.replace(marker, " ") != token.replace(marker, " "):
                wrong.append(name)
        note = (
            f"the tokenizer is not that of {self.name}, where other tokens ({shown(wrong)}) have"
            " its ids"
        )
        named = "ids that the model names otherwise"
        checks = [Check(named, len(wrong), 0, note if wrong else "")]
        if self.layer is not None:
            read = [i for i in ids if i < vocabulary][: self.context_window - 1]
            rows = self.context.read_map(read, self.layer)
            # below 1 with sinks
            over = float(max(np.abs(np.triu(rows, 1)).max(), rows.sum(-1).max() - 1))
            checks.append(Check("rows see what comes later, or are above 1", over, 1e-3))
        return checks

    def probe(self) -> np.ndarray:
        """As ``Engine.probe``, token by token in the sequence of texts by themselves."""
        with self.lock:
            logits = self.context.read_alone(probe_ids(self.context.vocabulary))
        return reduce_logits(torch.stack(logits).numpy())

    def provenance(self) -> Facts:
        if self.probed is None:  # nothing in this process changes what llama.cpp has loaded
            probe = self.probe()
            self.probed = Probed(probe, probe)
        return self.describe() | {"probe": write_probe(self.probed.probe)}

    def describe(self) -> Facts:
        self._hash = self._hash or hash_weights(None, [self.file])
        return {
            "model": self.name,
            "architecture": self.context.architecture,
            "weights_sha256": self._hash,
            "tokenizer_sha256": self.tokenizer.sha256,
            "dtype": self.context.dtype,
            "device": "llama.cpp",
            "layer": self.layer,
            "layer_chosen": self.layer_chosen,
            "heads": self.heads,
            "prefix_reuse": ", ".join(self.parts),
            "decoding": "sample" if self.sample else "greedy",
            "llama_cpp_python": version("llama-cpp-python"),
            "system": self.context.system,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }

    def identity(self) -> Facts:
        return self.identify(alternatives=self.alternatives, eos=sorted(self.eos))

    def __repr__(self) -> str:
        layer = f"layer {self.layer_chosen}" if self.has_attention else "no attention"
        can = torch.backends.cpu.get_cpu_capability()
        lacks = can.startswith("AVX") and f"{can} = 1" not in self.context.system
        how = ", without AMX, which crashes in some builds" * self.context.without_amx
        how += (
            f", by a build without this machine's {can}, so more slowly: build llama-cpp-python"
            " here" * lacks
        )
        where = (
            f"llama.cpp in this process on {self.context.threads} threads{how},"
            f" {self.context_window:,} tokens"
        )
        decoding = "sampling" if self.sample else "greedy"
        return f"LlamaModel({self.name}, {where}, {layer}, {decoding})"


class LlamaBatch(Batch):
    """Drafts written side by side, one in each sequence; fewer where memory for keys and values
    is short.
    """

    def __init__(self, lm: LlamaModel, size: int) -> None:
        super().__init__(lm, size)
        self.size = min(size, lm.context.make_room(size + 1) - 1)
        self.notes = [
            f"written {self.size} at a time: there is no room for more keys and values"
        ] * (self.size < size)

    def step(self) -> list[DraftResult]:
        """Write one more token of each draft; those that ended, or their errors."""
        ended: list[DraftResult] = []
        for sequence in set(range(self.size)) - self._writing.keys():
            if self._waiting:
                key, request, seed = self._waiting.pop(0)
                try:
                    self._writing[sequence] = key, self.engine.begin(request, seed)
                except Exception as error:  # noqa: BLE001 - handed to the episode that asked
                    ended.append((key, error))
        try:
            if self._writing:
                self.engine.advance({sequence: one for sequence, (_, one) in self._writing.items()})
        except ModelError as error:
            ended += [(key, error) for key, _ in self._writing.values()]
            self._writing.clear()
        for sequence, (key, one) in list(self._writing.items()):
            if one.complete:
                del self._writing[sequence]
                ended.append((key, one.error or one.finish()))
        return ended
