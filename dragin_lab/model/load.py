"""``LanguageModel``: a causal language model with a tap on one layer, that serves drafts and attention maps."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dragin_lab.almanac import embedded_model_path
from dragin_lab.checks import EMBEDDED, is_embedded, shown
from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError, ModelError
from dragin_lab.model import batch, decode, memory, replay, score
from dragin_lab.model.check import ALONE, WHOLE, Check, run_checks
from dragin_lab.model.gguf import convert_gguf, find_gguf
from dragin_lab.model.sources import find_source, first_line, load_pair, read_placing, weight_files
from dragin_lab.model.tapped import TappedModel
from dragin_lab.trace.trace import Continuation, Prompt


class LanguageModel(TappedModel):
    """A model, its tokenizer, and the tap on one of its layers.

    Get one with ``LanguageModel.load``; the constructor takes a model and tokenizer of ``transformers`` that are
    already in memory. One draft is written at a time; a second stream opened meanwhile has its own cache.
    With ``check`` it is refused where one of its checks fails; the other options, and the attributes, are those of
    ``TappedModel``.
    """

    def __init__(self, model: Any, tokenizer: Any, *, check: bool = True, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        if check:
            self._apply(self.check())

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        dtype: str | None = None,
        device: str | None = None,
        device_map: str | Mapping[str, Any] | None = None,
        quantization: Any = None,
        layer: int | str = "last",
        heads: Sequence[int] | None = None,
        alternatives: int = 5,
        sample: bool = False,
        check: bool = True,
    ) -> LanguageModel:
        """Load a causal language model.

        Args:
            source: a folder, a GGUF file or the folder of one, a Hugging Face id, or None or "almanac" for the
                embedded model. A GGUF file is converted once and kept in the user's cache (``gguf.convert_gguf``).
            dtype: name of a torch dtype; by default float32 on a CPU and bfloat16 on a GPU, whatever the files hold.
            device: default the first GPU, else the CPU.
            device_map: "auto", or a map from modules to devices, as transformers takes it, in place of ``device``;
                needs accelerate.
            quantization: a configuration of transformers, or the arguments of its ``BitsAndBytesConfig``.
            layer: the layer to capture: "last" (the last full-attention layer) or an index, negative from the end.
            heads: the heads to capture; None for all.
            alternatives: how many of the likeliest tokens to keep at each position.
            sample: sample tokens as the model's generation config says, instead of choosing the likeliest.
            check: run ``check`` and refuse the model where that fails.

        Raises:
            ModelError: an unknown id or path, missing or unreadable weights, no fast tokenizer, a GGUF file that cannot
                be converted, a model that cannot be captured, a failed check, a layer, head or dtype that does not
                exist.
        """
        title = EMBEDDED if is_embedded(source) else ""
        where = choose_device(device)
        kind = ("bfloat16" if where.type == "cuda" else "float32") if dtype is None else dtype
        if not isinstance(kind, str) or not isinstance(getattr(torch, kind, None), torch.dtype):
            raise ModelError(f"dtype={shown(dtype)} is not a dtype of torch; give float32, bfloat16 or float16")
        source = embedded_model_path() if source is None or title else source
        file, digest = find_gguf(source), ""
        if file is not None:
            source, digest = convert_gguf(file, getattr(torch, kind))
        name, folder = find_source(source)
        placing = read_placing(device_map, quantization)
        expected = None if title else memory.estimate_memory(name, getattr(torch, kind), where, *placing)
        if expected is not None and (expected.weights > memory.GIB or not expected.fits):
            print(f"{name}: {expected}", file=sys.stderr, flush=True)
        model, tokenizer = load_pair(name, getattr(torch, kind), where, *placing)
        loaded = cls(
            model,
            tokenizer,
            layer=layer,
            heads=heads,
            alternatives=alternatives,
            sample=sample,
            name=title or (file.name if file else folder.resolve().name if folder else name),
            files=[file] if file else weight_files(name, folder),
            check=check,
        )
        loaded.embedded = bool(title)
        loaded._hash = digest
        return loaded

    # -- drafts and maps ------------------------------------------------------------------------------------------

    def stream(
        self, draft: Write, seed: int | None = None, *, keep: decode.Keep | None = None
    ) -> Generator[decode.TokenEvent, None, Continuation]:
        """Tokens of a draft as they come; returns the ``Continuation``. See ``decode.stream``."""
        return decode.stream(self, draft, seed, keep=keep)

    def generate(self, draft: Write, seed: int | None = None, *, keep: decode.Keep | None = None) -> Continuation:
        """The continuation of a draft. See ``decode.stream`` for what is measured and what is raised."""
        return decode.finish_stream(decode.stream(self, draft, seed, every=False, keep=keep))

    def replay(
        self, draft: Write, cached: Mapping[str, np.ndarray], way: str
    ) -> tuple[list[decode.TokenEvent], Continuation] | None:
        """The draft from what was cached after its prompt, or None. See ``replay.replay``."""
        return replay.replay(self, draft, cached, way)

    def batch(self, size: int) -> batch.Batch:
        """Drafts written side by side, at most ``size`` at once; see ``batch.Batch``."""
        return batch.Batch(self, size)

    def score(
        self, prompt: Prompt, text: str, *, attention: bool = False, hidden: int | str | None = None
    ) -> Continuation:
        """``text`` as if the model had written it after ``prompt`` (teacher forcing), with everything measured.

        ``text`` is used to the character, with its leading space. One forward over prompt and text that
        leaves the cache of the drafts alone; ``attention`` keeps the rows in full, ``hidden`` the states of a layer
        (as ``Write``). ``stopped`` is "forced".

        Raises:
            ModelError: no text; a text that merges with the prompt's last token; one longer than the position table.
        """
        return score.score(self, prompt, text, attention=attention, hidden=hidden)

    def check(self) -> list[Check]:
        """The named checks that ``load`` makes: see ``check.run_checks``.

        Raises ``ModelError`` where the model cannot be run as drafts are written.
        """
        try:
            with self.lock:
                return run_checks(self)
        except Exception as error:
            if isinstance(error, DraginLabError) or batch.out_of_memory(error):
                raise
            raise ModelError(
                f"{type(self.model).__name__} cannot be read token by token on a cache of transformers "
                f"({first_line(error)}); use another model"
            ) from error

    def _apply(self, checks: list[Check]) -> None:
        """Refuse the model for a check that failed, or give up what that costs, and say so."""
        failed = [c for c in checks if not c.passed]
        if fatal := [c for c in failed if not c.costs]:
            raise ModelError("; ".join(map(str, fatal)) + ". Load with check=False to use it anyway")
        for c in failed:
            warnings.warn(f"{self.name}: {c}; {c.costs}", stacklevel=4)
        costs = {c.costs for c in failed}
        if WHOLE in costs:
            self.parts = ()
        if ALONE in costs:
            self.alone = "side by side this model gives other numbers than alone"


def choose_device(device: str | None) -> torch.device:
    """The device that a text names; by default the first GPU, else the CPU. ``ModelError`` for any other text."""
    try:
        where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f'device={shown(device)} is not a device of torch; give "cpu" or "cuda"') from error
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f'device={device!r}: torch finds no GPU here; give "cpu"')
    return where
