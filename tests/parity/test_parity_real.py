"""The same on a real pretrained model with the real English pipeline (real/README.md)."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import spacy
from spacy.language import Language
from test_parity import answer, assert_same_episode

from tools import real

HERE = Path(__file__).parent / "real"
#: Short cases that are part of every check.
FEW = ("smol-sr-rag-1-open6", "smol-flare-4-open4", "smol-dragin-5-open0")


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


CASES = lines("cases.jsonl")
EXPECTED = {row["id"]: row for row in lines("expected.jsonl")}

pytestmark = pytest.mark.real


@functools.cache
def english() -> Language:
    if not real.ENGLISH.folder.is_dir():
        pytest.skip("en_core_web_sm is not here; make real fetches it")
    return spacy.load(real.ENGLISH.folder, exclude=["ner", "lemmatizer"])


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c["id"], marks=[] if c["id"] in FEW else pytest.mark.slow) for c in CASES]
)
def test_same_as_released_code(case: dict) -> None:
    assert_same_episode(answer(case, english()), EXPECTED[case["id"]])
