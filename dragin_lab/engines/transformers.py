"""``LanguageModel``: a causal language model of transformers that writes drafts and measures
them.
"""

from __future__ import annotations

import inspect
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import transformers

from dragin_lab.almanac import embedded_model_path, exemplars_by_form
from dragin_lab.checks import EMBEDDED, count, is_embedded, shown
from dragin_lab.core.episode import Write
from dragin_lab.engines import sources
from dragin_lab.engines.arguments import settle_device, settle_dtype, settle_quantization
from dragin_lab.engines.check import Check, apply_checks, run_checks
from dragin_lab.engines.engine import Engine, Facts, OnToken
from dragin_lab.engines.generating import read_prompts, score_texts, write_texts
from dragin_lab.engines.identity import (
    Probed,
    describe_devices,
    hash_weights,
    is_plain,
    name_quantization,
    probe_ids,
    reduce_logits,
    stamp_model,
    write_probe,
)
from dragin_lab.engines.layers import choose_layer, describe_layer
from dragin_lab.engines.names import Source, find_gguf, find_source
from dragin_lab.engines.tap import Tap, exactly, restoring
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.engines.waves import Waves, out_of_memory
from dragin_lab.engines.writing import (
    OTHER_TYPE,
    PARTS,
    SHARE,
    Prefixes,
    Writing,
    batch_obstacle,
    find_ends,
    is_shareable,
    measure_logits,
    refuse_not_finite,
)
from dragin_lab.errors import DraginLabError, ModelError
from dragin_lab.trace.trace import Draft, Prompt

_FAR = 8  # context windows; longer texts are refused
_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _renew_after_fork() -> None:
    """A forked process has one thread: locks of others would stay locked, and torch's pool is
    gone.
    """
    _LOCKS.clear()
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_renew_after_fork)


class LanguageModel(Engine):
    """A model, its tokenizer, and the tap on one of its layers.

    Get one with ``LanguageModel.load``; the constructor takes a model and tokenizer of
    ``transformers`` that are already in memory, and what ``load`` takes beside. The model is used
    as it is at each draft, in eval mode, and left as it was: no hook, config or mode of it stays
    changed. Threads may share it.

    Attributes:
        hard_window: True where a text longer than ``context_window`` is impossible (a table of
            positions). layer: index of the captured layer; None for a model without attention.
            prefixes: the key-value caches of what earlier prompts began with
            (``prefixes.Prefixes``). alone: why drafts of this model cannot be written side by side;
            empty where they can.
    """

    has_hidden = True
    tokenizer: HFTokenizer

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        check: bool = True,
        name: str = "",
        files: Sequence[Path] = (),
    ) -> None:
        self.model: Any = sources.unwrap_model(model)
        self.tokenizer = HFTokenizer(
            getattr(tokenizer, "hf", tokenizer), self.model.generation_config.eos_token_id
        )
        embeddings = self.model.get_input_embeddings().num_embeddings
        added = self.tokenizer.hf.added_tokens_decoder if len(self.tokenizer) > embeddings else {}
        if lost := [
            token.content for i, token in added.items() if i >= embeddings and not token.special
        ]:
            raise ModelError(
                "the tokenizer has tokens that the model does not embed"
                f" ({', '.join(map(shown, lost[:3]))}); call"
                " model.resize_token_embeddings(len(tokenizer)), or use the model's own tokenizer"
            )
        self.device = sources.find_device(self.model)
        self.alternatives = min(count("alternatives", alternatives), embeddings)
        self.sample = sample
        config = self.model.config
        self._name = name or str(getattr(config, "_name_or_path", "")) or type(self.model).__name__
        self._adapted: Any = model if hasattr(model, "peft_config") else None
        self.context_window, self.hard_window = sources.read_window(self.model)
        self.rotary_switch = sources.read_rotary_switch(config)
        self.user: int | None = None  # id of the thread that uses the model now
        self.eos = self.tokenizer.ends
        self.tap = Tap(self.model, layer, heads)
        self.layer = self.tap.layer
        self.has_attention = not self.tap.why
        self.no_attention = self.tap.why
        self.layer_chosen = None if self.layer is None else describe_layer(config, self.layer)
        self.prefixes = Prefixes(device=self.device)
        cached = not {"past_key_values", "cache"}.isdisjoint(
            inspect.signature(self.model.forward).parameters
        )
        self.shareable = cached and is_shareable(config)
        self.parts = PARTS if self.shareable else ()
        self.no_batch = batch_obstacle(config) if cached else "it has no key-value cache"
        self._files = list(files)
        self._hash = ""
        self._stamp = ""
        # what it has been: stamps, probes and hashes of weights
        self._met: list[tuple[str, np.ndarray, str]] = []
        if check:
            apply_checks(self, self.check())
        if files:  # whose hash is the model's until that is changed
            self.provenance()

    @classmethod
    def load(
        cls,
        source: Source | None = None,
        *,
        dtype: Any = None,
        device: Any = None,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        check: bool = True,
        tokenizer: Any = None,
        **given: Any,
    ) -> LanguageModel:
        """Load a causal language model.

        Args:
            source: a folder, a GGUF file or the folder of one, a Hugging Face id, or None or
                "almanac" for the
                embedded model. A GGUF file is converted once and kept in the user's cache
                (``gguf.convert_gguf``).
            dtype: of torch, its name, or "auto" for that of the files; by default float32 on a CPU
                and bfloat16 on a GPU. device: default the first GPU, else the CPU. layer: the
                layer to capture: "last" (the last full-attention layer) or an index, negative from
                the end. heads: the heads to capture; None for all. alternatives: how many of the
                likeliest tokens to keep at each position. sample: sample tokens as the model's
                generation config says, instead of choosing the likeliest. check: run ``check`` and
                refuse the model where that fails. tokenizer: another than the source's: a folder,
                an id, or a loaded one. given: handed to ``from_pretrained`` as it is:
                ``device_map``, ``revision`` … What it took by an older name is written anew:
                ``torch_dtype``, ``load_in_4bit`` and all that bitsandbytes is told.

        Raises:
            ModelError: an unknown id or path, missing or unreadable weights, no fast tokenizer, a
                GGUF file that cannot
                be converted, a model that cannot be captured, a failed check, a layer, head or
                dtype that does not exist. SettingError: an argument that nobody takes, and two that
                contradict each other. MissingPackageError: what one of them needs.
        """
        title = EMBEDDED if is_embedded(source) else ""
        where = settle_device(device, given.get("device_map"))
        dtype = settle_dtype(dtype, given.pop("torch_dtype", None), where)
        settle_quantization(given)
        if source is None or title:
            source = embedded_model_path()
        within = given.get("gguf_file")
        if within and Path(source, within).is_file():  # else it is one of the Hub
            source = Path(source, given.pop("gguf_file"))
        file = find_gguf(source)
        digest = ""
        if file is not None:
            source, digest = sources.convert_gguf(file, dtype)
        name, folder = find_source(source)
        called = folder.resolve().name if folder else name
        if isinstance(tokenizer, str | Path):
            tokenizer = sources.load_tokenizer(tokenizer)
        model, tokenizer = sources.load_pair(name, dtype, where, given, tokenizer)
        loaded = cls(
            model,
            tokenizer,
            layer=layer,
            heads=heads,
            alternatives=alternatives,
            sample=sample,
            name=title or (file.name if file else called),
            files=[file] if file else sources.weight_files(name, folder, given),
            check=check,
        )
        loaded.exemplars = exemplars_by_form() if title else {}
        loaded._hash = digest
        return loaded

    def check(self) -> list[Check]:
        """The named checks that ``load`` makes: see ``check.run_checks``.

        Raises ``ModelError`` where the model cannot be run as drafts are written.
        """
        try:
            return run_checks(self)
        except Exception as error:
            if isinstance(error, DraginLabError) or out_of_memory(error):
                raise
            half = self.model.dtype == torch.float16
            raise ModelError(
                f"{type(self.model).__name__} cannot be read token by token by generate() "
                f"({sources.shorten_error(error)}); {OTHER_TYPE if half else 'use another model'}"
            ) from error

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        """As ``Engine.write``.

        When the stop is asked after token t (from 0), only the rows of the tokens before t are
        there: ``received`` counts those, so it is 0 for t - 1 and t. Raises ``ModelError`` for an
        empty prompt without BOS, a text that does not fit, and logits that are not finite.
        """
        with self.in_use():
            writing = Writing(self, request, seed, watch)
            read_prompts(self, [writing])
            write_texts(self, [writing])
        return writing.finish()

    def batch(self, size: int) -> Waves:
        return Waves(self, size)

    def is_rotated(self, tokens: int) -> bool:
        """Whether all of a text of so many tokens is rotated otherwise than a short one
        (longrope, dynamic).
        """
        return self.rotary_switch is not None and tokens > self.rotary_switch

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Reserve the model for this thread, in eval mode and without gradients."""
        ungraded = torch.inference_mode if is_plain(self.model) else torch.no_grad
        with self.lock, ungraded():
            training = [module for module in self.model.modules() if module.training]
            before = self.user

            def restore() -> None:
                self.user = before
                for module in training:
                    module.training = True

            with restoring(restore):
                self.user = threading.get_ident()
                if training:
                    self.model.eval()
                yield

    @property
    def name(self) -> str:  # type: ignore[override]
        """The model's, and the adapters (peft) that are active now, and not switched off."""
        if self._adapted is None or self._adapted_off:
            return self._name
        active = self._adapted.active_adapters
        return "+".join([self._name, *(active() if callable(active) else active)])

    @property
    def _adapted_off(self) -> bool:
        """Whether every adapter is switched off, as by ``disable_adapter``."""
        return self._adapted is not None and self._adapted.get_model_status().enabled is False

    @property
    def lock(self) -> Any:
        """One draft, map or score at a time on a model, however many wrappers it has; a forked
        process has its own.
        """
        return _LOCKS.setdefault(self.model, threading.RLock())

    def find_state(self, layer: int | str) -> int:
        """The place of a layer's states among a forward's ``hidden_states``; those of the last
        one are normed.
        """
        if isinstance(layer, str) and layer == "last":
            return -1
        return choose_layer(self.model.config, layer) + 1

    def refuse_overrun(self, p: int, new: int) -> None:
        """Raise ``ModelError`` where p + new tokens do not fit into a table of positions, or are
        far too many.

        Without such a table a model can read on beyond its window, though to little use; cost grows
        with the square, so beyond ``_FAR`` windows it is refused before it eats the machine's
        memory.
        """
        if self.hard_window:
            super().refuse_overrun(p, new)
        elif self.context_window is not None and p + new > _FAR * self.context_window:
            raise ModelError(
                f"{p:,} prompt tokens and {new} new ones are more than {_FAR} times the"
                f" {self.context_window:,} that {self.name} was trained for; shorten the question"
                ' or the passages, ask for fewer (top_k), or use variant="paper", which drops what'
                " does not fit"
            )

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``Engine.attend``, by one forward."""
        if not self.has_attention:
            raise ModelError(
                f"{type(self.model).__name__} gives no attention map: {self.no_attention}"
            )
        if not len(ids):
            return self.attend([0])[:, :0, :0]
        self.refuse_overrun(len(ids), 0)
        with self.in_use(), self.tap.listen(len(ids)):
            self.model.base_model(
                input_ids=torch.tensor([list(ids)], device=self.device), use_cache=False
            )
            rows: Any = self.tap.pop_rows()  # (1, h, n, n)
        refuse_not_finite(self, rows, len(ids))
        return rows[0].cpu().numpy()

    def force(self, request: Write) -> Draft:
        """As ``Engine.force``, by one forward over prompt and text."""
        ids, offsets = self.tokenizer.encode_prompt(request.prompt, self.name)
        given = list(request.prefix)
        return self.measure_text(
            ids, offsets, given, attention=request.attention, hidden=request.hidden
        )

    def score_many(self, prompts: Sequence[Prompt], ids: Sequence[int]) -> np.ndarray:
        """As ``Engine.score_many``; what all prompts begin with is read once."""
        encoded = [self.tokenizer.encode_prompt(prompt, self.name) for prompt in prompts]
        texts = [text for text, _ in encoded]
        longest = max(map(len, texts), default=0)
        self.refuse_overrun(longest, len(ids))
        rotated = self.is_rotated(longest + len(ids))
        if not prompts or not len(ids):
            return super().score_many(prompts, ids)
        ends = None
        if self.shareable and not rotated:
            ends = find_ends(prompts[0], encoded[0][1], self.parts)
        with self.in_use():
            return score_texts(self, texts, ends, list(map(int, ids)))

    def measure_text(
        self,
        prompt: list[int],
        offsets: np.ndarray,
        ids: list[int],
        attention: bool,
        hidden: int | str | None = None,
    ) -> Draft:
        """What the model would have measured had it written ``ids`` after a prompt: one forward
        over both.
        """
        began = time.perf_counter()
        n = len(ids)
        request = Write(Prompt(""), n, attention=attention, hidden=hidden)
        writing = Writing(self, request, prompt=(prompt, offsets))
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor([prompt + ids], device=self.device),
            "use_cache": False,
        }
        if "logits_to_keep" in inspect.signature(self.model.forward).parameters:
            inputs["logits_to_keep"] = n + 1
        if hidden is not None:
            inputs["output_hidden_states"] = True
        with self.in_use(), self.tap.listen(n + 1):
            output = self.model(**inputs)
            rows = self.tap.pop_rows()  # (1, h, n + 1, keys)
            logits = output.logits[0, -n - 1 : -1]  # (n, V)
            refuse_not_finite(self, logits, len(prompt))
            tokens = torch.tensor(ids, device=logits.device)
            with exactly(logits.device):
                measured = measure_logits(logits, tokens, self.alternatives)
            values = [part.cpu().numpy() for part in measured]
            states: Any = [None] * n
            if hidden is not None:
                kept = output.hidden_states[writing.state][0, -n - 1 : -1]  # (n, d)
                states = kept.float().cpu().numpy()
            paid = None if rows is None else rows[0].cpu().numpy()
        for r in range(n + 1):
            if paid is not None:
                keys = paid[:, r, : paid.shape[2] - n + r]
                writing.add_row(keys.mean(0), keys)
            if r < n:
                writing.add_token(ids[r], [part[r] for part in values], state=states[r])
        writing.stopped = "forced"
        writing.began = began
        return writing.finish()

    def probe(self) -> np.ndarray:
        """As ``Engine.probe``, by one forward: hooks, adapters, edited weights and exchanged
        modules are in it.
        """
        vocabulary = self.model.get_input_embeddings().num_embeddings
        ids = torch.tensor([probe_ids(vocabulary)], device=self.device)
        with self.in_use():
            logits = self.model(input_ids=ids, use_cache=False).logits[0]  # (8, V)
            refuse_not_finite(self, logits, len(logits))
            return reduce_logits(logits.float().cpu().numpy())

    def provenance(self) -> Facts:
        """As ``Engine.provenance``. Where the model was changed, kept prefixes are dropped and
        weights hashed anew.
        """
        with self.in_use():
            probe = self.probe()
            stamp = stamp_model(self.model)
            if self.probed is None:
                self.probed = Probed(probe, self.probe())
                self._stamp = stamp
            elif self.probed.changed(probe) or stamp != self._stamp:
                self._stamp = stamp
                self._files = []
                self._hash = ""
                for before, met, known in reversed(self._met):
                    if before == stamp and self.probed.is_of(met):
                        self._hash = known
                self.prefixes.clear()
        if not self._hash:
            prefix = self._adapted.base_model.prefix if self._adapted_off else None
            self._hash = hash_weights(self.model, self._files, without=prefix)
        if not any(own == stamp and met is self.probed.probe for own, met, _ in self._met):
            self._met.append((stamp, self.probed.probe, self._hash))
        return self.describe() | {"probe": write_probe(self.probed.probe)}

    def describe(self) -> Facts:
        quantization = name_quantization(self.model)
        return {
            "model": self.name,
            "architecture": type(self.model).__name__,
            "weights_sha256": self._hash,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": describe_devices(self.model, self.device),
            "attention": self.model.config._attn_implementation,
            "layer": self.layer,
            "layer_chosen": self.layer_chosen,
            "heads": self.tap.heads,
            "prefix_reuse": ", ".join(self.parts) or "none",
            "prefix_memory": SHARE if self.parts else "none",
            "decoding": "sample" if self.sample else "greedy",
            "generation_config": self.model.generation_config.to_diff_dict(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        } | ({"quantization": quantization} if quantization else {})

    def identity(self) -> Facts:
        if self.probed is None:
            self.provenance()
        return self.identify(
            tokenizer_sha256=self.tokenizer.sha256,
            alternatives=self.alternatives,
            eos=sorted(self.eos),
        )

    def __repr__(self) -> str:
        dtype = str(self.model.dtype).removeprefix("torch.")
        decoding = "sampling" if self.sample else "greedy"
        layer = f"layer {self.layer_chosen}" if self.has_attention else "no attention"
        kind = f"{type(self.model).__name__}, {dtype} on {self.device}"
        return f"LanguageModel({self.name}, {kind}, {layer}, {decoding})"
