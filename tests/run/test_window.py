"""What a model's window costs is counted in each prediction, marked in the table and said once
at the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import lm_tiny

import dragin_lab as dl
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import SettingError

LONG = "Ann Lee was born in the city of Ulm. " * 4


class Always:
    def search(self, query: str, k: int) -> list[dl.Passage]:
        return [dl.Passage(str(i), "Ann Lee", LONG) for i in range(k)]

    def provenance(self) -> dict[str, str]:
        return {"kind": "always"}


@pytest.fixture
def lab() -> dl.Lab:
    lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level())
    lm.context_window = 120
    shots = [Exemplar(f"Who is number {i}?", "It is Bo Ek.", "Bo Ek") for i in range(3)]
    return dl.Lab(lm, retriever=Always(), exemplars=shots)


def test_the_paper_variant_counts_what_it_drops_and_the_reference_what_outgrows_the_window(
    lab: dl.Lab,
) -> None:
    trace = lab.ask("Who is Ann Lee?", "sr-rag", variant="paper", max_new_tokens=8)
    assert trace.steps[0].passages_prompt is not None
    assert trace.lost["exemplars"] >= 1
    assert "beyond" not in trace.lost
    trace = lab.ask("Who is Ann Lee?", "sr-rag", variant="reference", max_new_tokens=8)
    assert trace.lost == {"beyond": len(trace.continuations)}
    lab.model.context_window = 100_000
    assert lab.ask("Who is Ann Lee?", "sr-rag", variant="reference", max_new_tokens=8).lost == {}


def test_a_run_counts_it_and_says_so_once_with_the_remedy(lab: dl.Lab, tmp_path: Path) -> None:
    method = dl.method("sr-rag", variant="paper", max_new_tokens=8)
    with pytest.warns(
        UserWarning, match=r"too small for 2 answers: .*passages were dropped.*Lower top_k"
    ) as told:
        runs = lab.run(
            ["Who is Ann Lee?", "Who is Bo Ek?"], method, output=tmp_path, progress=False
        )
    assert len([one for one in told if "window" in str(one.message)]) == 1
    record = runs.records[0]
    assert all(line["window"]["exemplars"] for line in record.predictions)
    assert "sr-rag-max_new_tokens=8 (window too small for 2)" in str(runs.table())


def test_a_preamble_that_does_not_fit_is_named(lab: dl.Lab) -> None:
    long = PromptTemplate(preamble="Write the answer step by step. " * 20)
    with pytest.raises(
        SettingError, match=r"the template's preamble and instruction, .* does not fit"
    ):
        lab.replace(exemplars=long).ask(
            "Who is Ann Lee?", "wo-rag", variant="paper", max_new_tokens=8
        )
    with pytest.raises(SettingError, match=r"the question with the answer so far, .* does not fit"):
        lab.ask("Who is Ann Lee? " * 30, "wo-rag", variant="paper", max_new_tokens=8)
