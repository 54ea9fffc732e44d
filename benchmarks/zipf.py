"""Passages of invented words whose frequencies are those of a language: for corpora of any size, from a seed.

    python benchmarks/zipf.py 1000000 passages.tsv.gz

Word frequencies follow Zipf's law in two regimes (Ferrer i Cancho and Solé, 2001): 1 / rank up to the 5,000th word,
steeper for the rest of two million, so that the vocabulary goes on growing with the text as Heaps' law says. The
commonest words are English function words, so that stop words are as common as in English. An article has one to nine
passages, one title, and a few words of its own that come back in each of them, so that a term's occurrences gather in
few passages, as names do.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dragin_lab.trace.trace import Passage

VOCABULARY = 2_000_000
WORDS = 60
SHIFT, FIRST, BEND, SECOND = 0.5, 1.0, 5000, 1.7
TOPIC_WORDS, TOPIC_SHARE, TOPIC_FROM = 4, 0.12, 500
_ARTICLES_AT_ONCE = 2000
_FUNCTION_WORDS = (
    "the of and in to a is was for as on by with at from he it that his an are be which this were also has or had "
    "first one its their after new not who they two her but she have been other when during all time into may some "
    "more there between school can only most over city made up states about known used year then while years later "
    "part where such him under three no will would both these became many people until team including since"
)
_COMMON = _FUNCTION_WORDS.split()
_ONSETS, _VOWELS = "b br c ch d dr f fl g gr h j k kl l m n p pr r s sh st t th tr v w z", "a e i o u ai ea ou"
_CODAS = ("", "n", "r", "s", "l", "m", "nd")
SYLLABLES = ["".join(parts) for parts in itertools.product(_ONSETS.split(), _VOWELS.split(), _CODAS)]


def word(rank: int) -> str:
    """The word of a frequency rank, from 0; the rarer, the longer."""
    if rank < len(_COMMON):
        return _COMMON[rank]
    parts = []
    rest = rank - len(_COMMON)
    while True:
        rest, syllable = divmod(rest, len(SYLLABLES))
        parts.append(SYLLABLES[(syllable * 577) % len(SYLLABLES)])
        if not rest:
            return "".join(parts)
        rest -= 1


def passages(count: int, *, words: int = WORDS, seed: int = 0) -> Iterator[Passage]:
    """The first ``count`` passages of a seed, ids 1, 2, ...; more of them begin with the same ones."""
    ranks = np.arange(VOCABULARY)
    weights = 1 / (ranks + SHIFT) ** FIRST
    weights[BEND:] *= ((BEND + SHIFT) / (ranks[BEND:] + SHIFT)) ** (SECOND - FIRST)
    limits = np.cumsum(weights / weights.sum())  # (vocabulary,)
    spelled: dict[int, str] = {}

    def text(ranks: np.ndarray) -> str:
        return " ".join(spelled.get(r) or spelled.setdefault(r, word(r)) for r in ranks.tolist())

    made = 0
    for chunk in itertools.count():
        draw = np.random.default_rng([seed, chunk])
        sizes = np.minimum(draw.geometric(0.3, _ARTICLES_AT_ONCE), 9)
        total = int(sizes.sum())
        topics = np.exp(
            draw.uniform(np.log(TOPIC_FROM), np.log(VOCABULARY - 1), (_ARTICLES_AT_ONCE, TOPIC_WORDS))
        ).astype(int)
        article = np.repeat(np.arange(_ARTICLES_AT_ONCE), sizes)  # (total,)
        common = np.searchsorted(limits, draw.random((total, words)))  # (total, words)
        own = topics[article[:, None], draw.integers(0, TOPIC_WORDS, (total, words))]
        ranks = np.minimum(np.where(draw.random((total, words)) < TOPIC_SHARE, own, common), VOCABULARY - 1)
        for row in range(total):
            made += 1
            title = text(topics[article[row], : 1 + article[row] % 3]).title()
            body = text(ranks[row])
            yield Passage(str(made), title, f"{body[0].upper()}{body[1:]}.")
            if made == count:
                return


def write_table(path: Path, count: int, *, words: int = WORDS, seed: int = 0) -> None:
    """The passages as a table like DPR's, packed where the name ends in .gz."""
    packed = path.suffix == ".gz"
    with gzip.open(path, "wt", encoding="utf-8", newline="") if packed else path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("id", "text", "title"))
        writer.writerows((p.id, p.text, p.title) for p in passages(count, words=words, seed=seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("out", type=Path, help="a .tsv or .tsv.gz")
    parser.add_argument("--words", type=int, default=WORDS, help="words of a passage")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_table(args.out, args.count, words=args.words, seed=args.seed)


if __name__ == "__main__":
    main()
