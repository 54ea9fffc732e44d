"""Small sources for builds of corpora, and what a build left."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable
from pathlib import Path

from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage

WORDS = [
    "harbour",
    "Zażółć",
    'the "old" mill',
    "電影",
    "river",
    "senate",
    "1887",
    "opened",
    "quarry",
    "bridge's",
    "of",
]


def some_passages(count: int, seed: int = 0) -> list[Passage]:
    """Passages with quotes, other scripts, and a word of their own each."""
    draw = random.Random(seed)
    return [
        Passage(
            str(i),
            draw.choice(WORDS),
            " ".join([*draw.choices(WORDS, k=draw.randint(3, 12)), f"word{i}x{seed}"]),
        )
        for i in range(1, count + 1)
    ]


def write_table(path: Path, passages: list[Passage], quoting: int = csv.QUOTE_MINIMAL) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=quoting, lineterminator="\n")
        writer.writerows([("id", "text", "title"), *((p.id, p.text, p.title) for p in passages)])
    return path


def write_json_lines(path: Path, passages: list[Passage]) -> Path:
    lines = (
        json.dumps({"id": p.id, "title": p.title, "text": p.text}, ensure_ascii=False)
        for p in passages
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def on_disk(passages: Iterable[Passage], folder: Path) -> Corpus:
    """A corpus of these passages, built in a folder."""
    rows = ({"id": p.id, "title": p.title, "text": p.text} for p in passages)
    return Corpus.build(rows, folder / "built")
