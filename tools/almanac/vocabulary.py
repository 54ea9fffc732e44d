"""The tokenizer of Almanac's model: one piece per ordinary word, two per surname and town, one per two digits.

It looks like Llama-2's (space marker `▁`, byte fallback with the line break as id 13), but is a unigram model whose
pieces are chosen, not learnt: every word of Almanac's sentences, and the syllables of its names. A text is cut into as
few pieces as possible, so a name that was never seen is cut at its syllables like every other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tools.almanac import names

SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{n:02X}>" for n in range(256))  # ids 3 to 258 as in Llama-2, so the line break is id 13
BOS, EOS = 1, 2
LEAST = 3  # times that a word must stand in the texts to be a piece
_WORD = re.compile(r"▁?[^\W\d_]+")


def make_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer whose words are those of the texts: space marker `▁`, byte fallback, `<s>` put before every text."""
    syllables = dict.fromkeys(
        [f"▁{one}" for one in names.syllables("heads")]
        + names.syllables("heads")
        + names.syllables("tails")
        + [f"▁{word}" for word in names.words()]
    )
    made_of_syllables = re.compile(
        f"▁?(?:{'|'.join(names.syllables('heads'))})(?:{'|'.join(names.syllables('tails'))})"
    )
    counts: Counter[str] = Counter()
    for text in texts:
        for word in _WORD.findall(text.replace(" ", "▁")):
            if not made_of_syllables.fullmatch(word):
                counts[word] += 1
    words = sorted(word for word, count in counts.items() if count >= LEAST and len(word) > 1)
    digits = [*(str(n) for n in range(10)), *(f"{n:02d}" for n in range(100))]
    letters = ["▁", *(chr(code) for code in range(33, 127) if not chr(code).isdigit())]
    pieces = list(dict.fromkeys([*SPECIAL, *BYTES, *letters, *digits, *syllables, *words]))
    # The fewest pieces win; among those, the ones with fewer single letters.
    scores = [-1.0 if len(one) > 1 or one.isdigit() else -1.4 for one in pieces]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", "merged_with_next"),
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(Regex(r"[^\w▁]"), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", BOS)]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and the configuration with which `AutoTokenizer` loads the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "model_max_length": 2048,
        "pad_token": "<unk>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
