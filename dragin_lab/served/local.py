"""llama.cpp in this process: its own HTTP server on 127.0.0.1, from the package xllamacpp."""

from __future__ import annotations

import os
import secrets
import sys
import weakref
from importlib.util import find_spec
from pathlib import Path

from dragin_lab.checks import choice, count, shown
from dragin_lab.engines.gguf import find_gguf
from dragin_lab.errors import MissingPackageError, ModelError
from dragin_lab.text import printable

CONTEXT = 4096  # tokens of prompt and text, where nobody says
_DTYPES = {"float32": "GGML_TYPE_F32", "float16": "GGML_TYPE_F16"}


class LocalServer:
    """A GGUF file served by llama.cpp until ``close``, or until nothing refers to this any more.

    A key that only this process knows keeps other users of the machine out. With ``inputs`` it is asked for what its
    output head reads (``/embeddings``), of a text as long as the context, instead of for tokens.

    Attributes:
        file: the GGUF file.
        address, key: of the server.
        threads: that it computes on.

    Raises:
        MissingPackageError: xllamacpp is not installed.
        ModelError: no GGUF file, or one that llama.cpp does not open.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        dtype: str = "float16",
        threads: int | None = None,
        context: int = CONTEXT,
        slots: int = 1,
        inputs: bool = False,
    ) -> None:
        file = find_gguf(source)
        if file is None:
            raise ModelError(f"model {shown(str(source))} is no GGUF file; engine='llama.cpp' serves only those")
        if find_spec("xllamacpp") is None:
            raise MissingPackageError("engine='llama.cpp' needs xllamacpp; run pip install 'dragin-lab[llama]'")
        import xllamacpp

        self.file: Path = file
        self.dtype = dtype
        self.threads = count("threads", _free_threads() if threads is None else threads)
        self.key = secrets.token_hex(16)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(file)
        parameters.n_ctx, parameters.n_parallel = count("context", context) * count("slots", slots), slots
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = self.threads
        parameters.api_keys = [self.key]
        parameters.fit_params = parameters.warmup = False
        parameters.verbosity = 0
        parameters.cache_type_k = parameters.cache_type_v = getattr(
            xllamacpp.ggml_type, _DTYPES[choice("dtype", dtype, _DTYPES)]
        )
        if inputs:
            parameters.embedding = True
            parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_NONE
            parameters.n_batch = parameters.n_ubatch = parameters.n_ctx
        if dtype == "float32":  # flash attention sums in half precision
            parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        try:
            running = [xllamacpp.Server(parameters)]
        except RuntimeError as error:
            raise ModelError(
                f"{file.name} cannot be served by llama.cpp ({error}); it may be cut short or of an architecture that "
                "it does not know: compare its size, or upgrade xllamacpp"
            ) from error
        self.address = str(running[0].listening_address)
        self.close = weakref.finalize(self, running.clear)  # the server ends when nothing refers to it
        if not inputs:
            print(printable(f"{file.name}: served by llama.cpp on {self.threads} threads"), file=sys.stderr, flush=True)

    def __str__(self) -> str:
        return f"llama.cpp in this process on {self.threads} threads"


def _free_threads() -> int:
    """As many as torch would take: what the environment says, else one for each core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else os.cpu_count() or 1
