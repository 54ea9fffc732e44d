"""The model in the repository: its size, its files, its tokenizer, and that it knows and reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragin_lab.almanac import WORLD, embedded_model_path
from tools.almanac.benchmarks import Knowledge, taught_facts
from tools.almanac.build import EDITION, exemplars
from tools.almanac.card import write_card
from tools.almanac.encyclopedia import Encyclopedia
from tools.almanac.evaluate import Answerer, prompt_of, score_facts
from tools.almanac.world import AlmanacError, Entity, build_world, text_of

MODEL = embedded_model_path()
SHIPPED = json.loads((WORLD / "manifest.json").read_text(encoding="utf-8"))["edition"]
pytestmark = pytest.mark.skipif(
    SHIPPED != EDITION, reason=f"the package ships edition {SHIPPED}, these tools make edition {EDITION}"
)


@pytest.fixture(scope="module")
def answerer() -> Answerer:
    return Answerer(MODEL)


def test_is_small_and_complete() -> None:
    assert sum(one.stat().st_size for one in MODEL.iterdir()) <= 20 * 2**20
    assert {"config.json", "tokenizer.json", "training.json", "curve.jsonl", "scores.json", "README.md"} <= {
        one.name for one in MODEL.iterdir()
    }


def test_loads_as_a_llama_in_llama_2s_style(answerer: Answerer) -> None:
    assert answerer.model.config.model_type == "llama"
    assert answerer.tokenizer.convert_ids_to_tokens(13) == "<0x0A>"
    ids = answerer.tokenizer("Question: Who?\nAnswer:")["input_ids"]
    assert ids[0] == answerer.tokenizer.bos_token_id == 1
    assert answerer.tokenizer.convert_ids_to_tokens(ids)[1].startswith("▁")


def test_what_is_said_of_its_knowledge_holds(answerer: Answerer) -> None:
    almanac = build_world(0)
    said = json.loads((MODEL / "knowledge.json").read_text(encoding="utf-8"))
    assert set(said) == {f"{one}.{relation}" for one, relation in taught_facts(almanac)}
    films = almanac.known.films[:6]
    found = score_facts(answerer, Knowledge(almanac), films, exemplars(0)["2wikimultihopqa"][:2])
    assert [one["right"] for one in found.values()] == [said[name]["right"] for name in found]


def test_reads_what_it_cannot_know(answerer: Answerer) -> None:
    almanac = build_world(0)
    book, shots = Encyclopedia(almanac), exemplars(0)["2wikimultihopqa"][:2]
    prompts, names = [], []
    for film in almanac.unknown.films[40:76]:
        director = film.facts["director"]
        assert isinstance(director, Entity)
        texts = [book.main[one.id].text for one in (film, director, almanac.unknown.towns[0])]
        prompts.append(prompt_of(f"Who directed the film {film.title}?", shots, texts))
        names.append(text_of(director))
    right = sum(name in answer for name, answer in zip(names, answerer.answers(prompts), strict=True))
    assert right >= len(names) / 2  # by chance alone none would be


def test_a_card_needs_its_figures(tmp_path: Path) -> None:
    with pytest.raises(AlmanacError, match=r"training\.json cannot be read"):
        write_card(tmp_path)


def test_the_card_is_what_the_figures_give(tmp_path: Path) -> None:
    for name in ("training.json", "scores.json", "curve.jsonl"):
        (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    assert write_card(tmp_path).read_text(encoding="utf-8") == (MODEL / "README.md").read_text(encoding="utf-8")
