"""``ServedEndpoint``: a server's model with its tokenizer, and whether it is, and stays, the one that it should be."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

import numpy as np
import transformers

from dragin_lab.checks import count, shown
from dragin_lab.core.episode import Write
from dragin_lab.engines.check import Check
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.errors import ModelError, ModelServerError, SettingError
from dragin_lab.served.bounds import Token
from dragin_lab.served.protocols import Asked, Interface
from dragin_lab.trace.frames import differences

LIKELIEST = 20  # of each token, that a server is asked for
#: What a model is known by, beside what its server says: the ids it writes after these.
_KNOWN_BY = ("The capital of France is", "1, 2, 3, 4,", "Once upon a time")
_IDS = 8
#: Texts whose ids both vocabularies have to read alike.
_TEXTS = ("Who directed the film Jaws?", "Zoë paid 1,250 € in Łódź.", " two  spaces,\na line")


class ServedEndpoint:
    """A model behind a server, and its tokenizer.

    Args:
        interface: the server's.
        tokenizer: the model's own.
        likeliest: k, how many of the likeliest tokens the server is asked for and drafts keep.
        sample: draw tokens, instead of taking the likeliest.
        name: what it is called; the server's name for it by default.
        check: compare the tokenizer with the server's vocabulary, and refuse it where they differ.

    Attributes:
        context_window: tokens that prompt and text may have, or None where the server does not say.
        eos: the ids of the end marks.

    Raises:
        ModelError: a tokenizer of another vocabulary; a server that gives fewer than k likeliest.
    """

    has_hidden, has_attention, embedded, hard_window = False, False, False, True
    no_attention = "it is behind a server; engine='llama.cpp' gives that of a GGUF file"
    parts: tuple[str, ...] = ()  # of a prompt, in what it is read; the server decides
    alone = ""

    def __init__(
        self,
        interface: Interface,
        tokenizer: HFTokenizer,
        *,
        likeliest: int = LIKELIEST,
        sample: bool = False,
        name: str = "",
        check: bool = True,
    ) -> None:
        self.interface, self.tokenizer, self.sample = interface, tokenizer, sample
        self.likeliest = self.alternatives = min(count("likeliest", likeliest), interface.vocabulary)
        self.name = name or str(interface.about["model"])
        self.context_window, self.eos = interface.window, tokenizer.ends
        self.plain = tokenizer.encode("a", special=False)[-1]
        vocabulary = tokenizer.hf.backend_tokenizer.to_str()  # of many tokens, so it is written once
        self._tokenizer_sha256 = hashlib.sha256(vocabulary.encode()).hexdigest()
        self._failures = interface.server.failures
        if check and (failed := [one for one in self.check() if not one.passed]):
            raise ModelError(f"{'; '.join(one.note for one in failed)}. Load with check=False to use it anyway")
        self._answers = self._fingerprint()

    # -- what it cannot write -----------------------------------------------------------------------------------------

    def refuse(self, draft: Write) -> None:
        """Raise ``ModelError`` or ``SettingError`` for what a server cannot give, or no tokens."""
        if draft.max_new_tokens < 1:
            raise SettingError(f"max_new_tokens={draft.max_new_tokens}: give 1 or more")
        if draft.hidden is not None:
            raise ModelError(f"{self.name} is behind a server, which gives no hidden states; load it in transformers")
        if draft.attention and not self.has_attention:
            raise ModelError(f"{self.name} has no attention: {self.no_attention}")

    def refuse_overrun(self, p: int, new: int) -> None:
        """Raise ``ModelError`` where p + new tokens do not fit into the server's window."""
        if self.context_window is not None and p + new > self.context_window:
            raise ModelError(
                f"{p:,} prompt tokens and {new} new ones do not fit into the {self.context_window:,} positions of "
                f"{self.name} at {self.interface.server.address}; shorten the prompt, lower max_new_tokens, or start "
                "the server with a larger context"
            )

    # -- is it still the same? ----------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Ask what identifies the model; after a failure of the server, its answers to fixed prompts too.

        Raises ``ModelServerError`` where it is another one than was opened.
        """
        server = self.interface.server
        if changes := differences(self.interface.about, self.interface.facts()):
            raise self.changed(changes[0])
        if server.failures != self._failures:
            failures = server.failures
            if self._fingerprint() != self._answers:
                raise self.changed("it answers fixed prompts otherwise")
            self._failures = failures

    def changed(self, how: str) -> ModelServerError:
        """The error of another model than was opened."""
        return ModelServerError(
            f"another model than {self.name} answers at {self.interface.server.address} now ({how}); start the first "
            "one again, or open a new Lab"
        )

    def failed(self, error: Any) -> ModelServerError:
        """The error that a server sends in the middle of an answer."""
        why = error.get("message", error) if isinstance(error, dict) else error
        return ModelServerError(f"{self.interface.server.address} failed while it wrote: {shown(why)}")

    def _fingerprint(self) -> str:
        """SHA-256 (hex) of the ids written after fixed prompts."""
        texts = [self._written(self.tokenizer.encode(text, special=True), 1) for text in _KNOWN_BY]
        return hashlib.sha256(json.dumps([[token.id for token in text] for text in texts]).encode()).hexdigest()

    def _written(self, ids: list[int], k: int) -> list[Token]:
        """The next few tokens, the likeliest ones, each with the k likeliest."""
        interface = self.interface
        return interface.tokens(interface.answer(Asked(ids, _IDS, k)), k)

    def check(self) -> list[Check]:
        """Compare the tokenizer with the server's vocabulary, and how many of the likeliest tokens it gives with k."""
        interface, address = self.interface, self.interface.server.address
        hf = self.tokenizer.hf  # converted from a GGUF file it may have added tokens that the model lacks
        largest = max(i for i in hf.get_vocab().values() if i not in hf.added_tokens_decoder)
        wrong = [text for text in _TEXTS if not self._reads_alike(text)]
        most = len(self._written(self.tokenizer.encode(_KNOWN_BY[0], special=True), self.likeliest)[0].ids)
        other = f"the tokenizer is not that of the model at {address}"
        checks = [
            ("largest id of the tokenizer", largest, interface.vocabulary - 1,
             f"{other}: it has {largest + 1:,} tokens, the model {interface.vocabulary:,}"),
            ("texts that the server reads otherwise", len(wrong), 0,
             f"{other}: its ids of {(*wrong, '')[0]!r} are another text there"),
            ("likeliest tokens that are missing", self.likeliest - most, 0,
             f"{address} gives the {most} likeliest tokens of {self.likeliest}; give likeliest={most}, or lift the "
             "server's limit (vllm serve --max-logprobs)"),
        ]  # fmt: skip
        return [
            Check(name, value <= limit, value, limit, "" if value <= limit else note)
            for name, value, limit, note in checks
        ]

    def _reads_alike(self, text: str) -> bool:
        ids = [i for i in self.tokenizer.encode(text, special=False) if i < self.interface.vocabulary]
        there = self.interface.text_of(ids)
        return there is None or there.strip() == self.tokenizer.decode(ids, special=True).strip()

    # -- for people ---------------------------------------------------------------------------------------------------

    def provenance(self) -> dict[str, Any]:
        """Everything known about the model that decides what it writes; values fit into JSON. No address, no token."""
        return {
            "model": self.name,
            "served_by": self.interface.kind,
            "served": self.interface.about,
            "answers_sha256": self._answers,
            "tokenizer_sha256": self._tokenizer_sha256,
            "likeliest": self.likeliest,
            "decoding": "sample" if self.sample else "greedy",
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }

    def identity(self) -> dict[str, Any]:
        """All that is known to change what is written and measured, prompt and request aside; values fit into JSON."""
        from dragin_lab import __version__

        return self.provenance() | {
            "eos": sorted(self.eos),
            "numpy": np.__version__,
            "dragin_lab": __version__,
        }

    def close(self) -> None:
        """Close the connections."""
        self.interface.server.close()

    def __repr__(self) -> str:
        where = f"{self.interface.kind} at {self.interface.server.address}"
        decoding = "sampling" if self.sample else "greedy"
        return f"ServedModel({self.name}, {where}, {self.likeliest} likeliest tokens, no attention, {decoding})"
