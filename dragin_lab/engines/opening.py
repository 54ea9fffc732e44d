"""Open a GGUF file in llama.cpp, with its own tokenizer or another."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from dragin_lab.almanac import embedded_model_path
from dragin_lab.checks import is_embedded
from dragin_lab.engines.gguf import convert_tokenizer, find_gguf
from dragin_lab.engines.llama import LlamaModel
from dragin_lab.engines.llama_context import load_bindings
from dragin_lab.engines.sources import load_tokenizer, silence_library
from dragin_lab.text import printable


def open_llama(file: Path, tokenizer: Any, options: dict[str, Any]) -> LlamaModel:
    load_bindings()  # whose lack is said before anything is converted
    folder = find_tokenizer(tokenizer)
    config = None
    with suppress(OSError, ValueError), silence_library():  # a tokenizer may stand alone
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    lm = LlamaModel(file, load_tokenizer(folder), config, **options)
    lm.embedded = is_embedded(tokenizer)
    print(printable(describe_build(lm)), file=sys.stderr, flush=True)
    return lm


def find_tokenizer(source: Any) -> Any:
    """The folder or Hugging Face id of a tokenizer; a GGUF file's is converted once."""
    if is_embedded(source):
        return embedded_model_path()
    file = find_gguf(source)
    return source if file is None else convert_tokenizer(file)


def describe_build(lm: LlamaModel) -> str:
    """What runs, for people, and what the build of llama.cpp lacks of this machine's instructions."""
    system, context = lm.context.bindings.llama_print_system_info().decode(), lm.context
    can = torch.backends.cpu.get_cpu_capability()  # such as AVX512
    lacks = can.startswith("AVX") and f"{can} = 1" not in system
    slow = f"; its build lacks this machine's {can}, so it reads more slowly: build llama-cpp-python here" * lacks
    return f"{lm.name}: llama.cpp on {context.threads} threads, {context.window:,} tokens of prompt and text{slow}"
