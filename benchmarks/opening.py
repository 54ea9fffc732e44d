"""What opening a GGUF file in llama.cpp costs where its vocabulary is large, in processor seconds.

    python benchmarks/opening.py

The file is made here: two random layers behind a vocabulary of Gemma 3's size and kind, byte
fallback and pieces that are two earlier ones each. The first time its tokenizer is converted and
kept. Each opening has a process of its own, and what importing the libraries takes is not in it.
"""

from __future__ import annotations

import json
import os
import random
import string
import tempfile
import time
from pathlib import Path
from typing import Any

from common import budget, child, machine, parser, write

VOCABULARY, LONGEST = 262_144, 16  # tokens, and characters of one
FIRST, THEN = 10.0, 4.0  # seconds at most


def draw_pieces(count: int) -> list[str]:
    """Pieces of text, each but the first letters joined of two before it, as BPE would learn
    them.
    """
    draw = random.Random(0)
    pieces = dict.fromkeys([*string.ascii_letters, *string.digits, *string.punctuation, "▁"])
    known = list(pieces)
    while len(known) < count:
        # rather of early, short ones
        new = "".join(known[int(len(known) * draw.random() ** 3)] for _ in range(2))
        if len(new) <= LONGEST and new not in pieces:
            pieces[new] = None
            known.append(new)
    return known


def write_file(path: Path) -> None:
    """A Llama of random weights and that vocabulary, by llama.cpp's converter's conventions."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    from tests.gguf_files import write_gguf

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    control = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = control + draw_pieces(VOCABULARY - len(control))
    scores = [(token, -float(max(i - len(control), 0))) for i, token in enumerate(tokens)]
    raw = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    raw.add_special_tokens(control[:3])
    write_gguf(path, transformers.LlamaForCausalLM(config), raw)


def open_file(path: Path) -> dict[str, float]:
    """Processor seconds of one opening, by a process that has done nothing else."""

    from dragin_lab.engines.load import open_model

    began = time.process_time()
    lm: Any = open_model(path, engine="llama.cpp", threads=1)
    seconds = time.process_time() - began
    assert len(lm.tokenizer) == VOCABULARY
    return {"seconds": seconds}


def main() -> None:
    options = parser(__doc__, "opening")
    options.add_argument("--open", type=Path, help="the file to open, in a process of its own")
    args = options.parse_args()
    if args.open:
        print(json.dumps(open_file(args.open)))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        write_file(path := Path(folder) / "large.gguf")
        first, then = (child(__file__, "--open", path)["seconds"] for _ in range(2))
    what = f"opening a GGUF file of {VOCABULARY:,} tokens in llama.cpp, processor time"
    budgets = [
        budget(f"{what}, the first time", first, FIRST, "s"),
        budget(f"{what}, then", then, THEN, "s"),
    ]
    write(args.out, {"budgets": budgets, "machine": machine()})


if __name__ == "__main__":
    main()
