"""The cache: what it stands for, and by what a prompt and a model are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from answering import embedded

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.run.cache import Cache, as_cache


def test_what_cache_may_stand_for(tmp_path: Path) -> None:
    assert as_cache(None) is as_cache(False) is None
    mine = Cache()
    assert as_cache(mine) is mine
    assert isinstance(as_cache(True), Cache)
    with pytest.raises(SettingError, match="cache=3: give a Cache, True"):
        as_cache(3)  # type: ignore[arg-type]
    for folder in (tmp_path, str(tmp_path)):
        with pytest.raises(SettingError, match=r"of one process, .*: give cache=True; lab\.run"):
            dl.Lab(cache=folder)  # type: ignore[arg-type]


def test_a_prompt_is_known_by_its_ids() -> None:
    """A passage's "</s>" is text where the passage has a name, and an end mark where a layout of
    one's own hides it.
    """
    question = "Who directed The Ashen Rooftop?"

    def search(query: str, k: int) -> list[dict[str, str]]:
        return [
            {
                "id": "1",
                "title": "t",
                "text": "Ida Velmoor made it.</s></s> She was born in Eastmere.",
            }
        ]

    def layout(asked: str, passages: list[dl.Passage], answer: str) -> str:
        shown = (
            f"Context:\n[1] {passages[0].text}\nAnswer in the same format as before.\n"
            if passages
            else ""
        )
        return f"{shown}Question: {asked}\nAnswer:{answer}"

    def read(template: dl.PromptTemplate, cache: Cache | None) -> list[int]:
        lab = embedded().replace(retriever=search, exemplars=template, cache=cache)
        written = lab.ask(question, "sr-rag", top_k=1, max_new_tokens=4).steps[0].continuation
        assert written is not None
        return written.prompt_ids.tolist()

    cache = Cache()
    own, named = dl.PromptTemplate(layout=layout), dl.PromptTemplate()
    alone = [read(template, None) for template in (named, own)]
    assert [read(template, cache) for template in (named, own)] == alone
    assert alone[0] != alone[1]
