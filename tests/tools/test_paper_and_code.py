"""The script behind docs/paper-and-code.md: what it swaps is one thing, and every figure of the page has its place."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.model.load import LanguageModel
from dragin_lab.study import needs
from dragin_lab.study.needs_query import ask_at, place_of
from dragin_lab.trace.trace import Passage
from tools.pages import paper_and_code, paper_and_code_page, variants_rind, variants_scores, variants_swaps

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dragin_lab"
QUESTION = "Who is the mother of the director of film Elm Road?"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return LanguageModel.load(ROOT / "tests" / "parity" / "models" / "almanac-small")


class Fixed:
    def search(self, query: str, k: int) -> list[Passage]:
        return [Passage("1", "", "Elm Road is a film by Ada Orleth.")]


# -- RIND taken apart -------------------------------------------------------------------------------------------------


def test_unswapped_scores_are_those_of_the_variants(lm: LanguageModel) -> None:
    pipeline = load_pipeline()
    text = (
        " The director of Elm Road is Ada Orleth. The mother of Ada Orleth is Ida Orleth. So the answer is Ida Orleth."
    )
    made = lm.score(PromptTemplate().render(QUESTION), text, attention=True)
    ids = made.ids.tolist()
    alone, marker = lm.attend(ids), lm.tokenizer.marker
    decoded = [lm.tokenizer.decode([i], special=True) for i in ids]
    expected = needs.score_tokens(made, alone, marker, decoded, pipeline)
    for rind, name in ((variants_rind.REFERENCE, "rind-reference"), (variants_rind.PAPER, "rind")):
        scores = rind.scores(made, alone, marker, "</s>", pipeline)
        np.testing.assert_allclose(scores, expected[name], rtol=5e-3, atol=1e-5)  # attention is kept in float16
        assert scores.max() > 0
    bases = variants_rind.BASES
    moved = {
        swap.difference
        for swap in variants_rind.TRIGGERS
        if not np.allclose(
            swap.rind.scores(made, alone, marker, "</s>", pipeline),
            bases[swap.base].scores(made, alone, marker, "</s>", pipeline),
        )
    }
    assert moved >= {"R1", "R3", "R4", "R5", "R6", "R7", "R8", "R9"}


def test_each_swap_changes_one_part() -> None:
    for swap in variants_rind.TRIGGERS:
        base = variants_rind.BASES[swap.base]
        parts = [name for name in vars(base) if getattr(swap.rind, name) != getattr(base, name)]
        assert len(parts) == 1, swap


# -- models that answer otherwise -------------------------------------------------------------------------------------


def test_attention_in_context_is_the_drafts_own(lm: LanguageModel) -> None:
    from dragin_lab.core.episode import Write

    between = variants_swaps.InContext(lm)
    prompt = PromptTemplate().render(QUESTION)
    draft, made = between.stream(Write(prompt, 12)), None
    while made is None:
        try:
            next(draft)
        except StopIteration as end:
            made = end.value
    attention = between.attend(made.ids.tolist())
    later = np.tril(attention.mean(axis=0), -1).max(axis=0)
    np.testing.assert_allclose(later, made.received, rtol=5e-3, atol=1e-4)
    other = made.ids.tolist()[:-1]
    np.testing.assert_allclose(between.attend(other), lm.attend(other), atol=1e-6)


def test_prompts_are_retyped_and_nothing_else(lm: LanguageModel) -> None:
    swaps = variants_swaps
    run = next(run for run in swaps.SWAPPED if run.key == "fs-rag, no stray space")
    method = run.method(None, 24)
    plain, mended = (
        dl.Lab(one, retriever=Fixed(), exemplars=PromptTemplate()).ask(QUESTION, method) for one in (lm, run.asked(lm))
    )
    assert "t he same" in plain.steps[0].passages_prompt.text  # type: ignore[union-attr]
    ids = [trace.steps[0].continuation.prompt_ids for trace in (plain, mended)]  # type: ignore[union-attr]
    assert [lm.tokenizer.decode(i, special=False).count("t he same") for i in ids] == [1, 0]


def test_queries_swap_what_they_say(lm: LanguageModel) -> None:
    one = almanac.labels("iirc", "dev", 6)[-1]
    fact = one.facts[-1]
    template, pipeline = PromptTemplate(), load_pipeline()
    place = place_of(lm, one, fact, template, pipeline)
    found = {}
    for swap in variants_swaps.whats():
        there = swap.place(lm, place) if swap.place else place
        asked = swap.model(lm) if swap.model else lm
        found[swap.key] = ask_at(asked, Fixed(), one, fact, there, template, swap.method).query
        assert swap.base is None or swap.base in found
    words = found["reference qfs"].split()
    assert set(found["reference qfs, 5 words"].split()) <= set(words)
    assert len(found["reference qfs, 5 words"].split()) == 5
    assert set(found["reference qfs, every word may be asked"].split()) - set(words)  # "the", "is", …
    assert found["reference qfs, 5 words"] != found["paper qfs, 5 words"]


# -- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "extraction", "gold", "expected"),
    [
        ("It is Bo. So the answer is Bo.", None, ["Bo"], {}),
        ("It is Bo. Then the answer is Bo.", None, ["Bo"], {"S1": 0}),
        ("So the answer is Bo. He was far.", None, ["Bo"], {"S0": 0, "S1": 0, "S2": 0, "S6": 0, "S7": 0, "S3": 1}),
        ("So the answer is Bo. Question: And?", None, ["Bo"], {"S2": 0}),
        ("So the answer is Bo.", None, ["Bo Ek", "Bo"], {"S6": 0}),
        ("It is Bo", "Bo.", ["Bo"], {}),
    ],
)
def test_texts_read_otherwise(text: str, extraction: str | None, gold: list[str], expected: dict[str, int]) -> None:
    row = {"text": text, "extraction": extraction, "gold": gold}
    for rule in ("S0", "S1", "S2", "S3", "S6", "S7"):
        em, _ = variants_scores.rescored(row, rule, "2wikimultihopqa", load_pipeline())
        assert em == expected.get(rule, 1), rule


def test_yes_and_no_read_otherwise() -> None:
    def em_f1(text: str, rule: str, kind: str = "strategyqa") -> tuple[float, float]:
        row = {"text": f"So the answer is {text}.", "extraction": None, "gold": ["no"]}
        return variants_scores.rescored(row, rule, kind, load_pipeline())

    assert em_f1("unknown", "S0") == (1.0, 1.0)
    assert em_f1("unknown", "S5") == (0.0, 0.0)
    assert em_f1("no", "S5") == (1.0, 1.0)
    assert em_f1("no and yes", "S0", "iirc")[1] == 0
    assert em_f1("no and yes", "S7", "iirc")[1] == pytest.approx(0.5)


# -- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_whole_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark, few methods, resumed: the same page, and nothing computed twice."""
    few = [
        run
        for run in variants_swaps.SWAPPED
        if run.key in ("wo-rag", "wo-rag, paper variant", "dragin", "dragin, θ 1.2")
    ]
    asked = [swap for swap in variants_swaps.whats() if swap.difference in ("", "Q1") and "qfs" in swap.key]
    asked = [*asked, next(swap for swap in variants_swaps.whats() if swap.key == "paper qfs")]
    for module in (paper_and_code, paper_and_code_page):
        monkeypatch.setattr(module, "SWAPPED", few)
        monkeypatch.setattr(module, "whats", lambda: sorted(asked, key=lambda swap: swap.base is not None))
    monkeypatch.setattr(paper_and_code_page, "SAMPLES", 20)
    template = paper_and_code.TEMPLATE.read_text(encoding="utf-8")
    monkeypatch.setattr(paper_and_code, "TEMPLATE", tmp_path / "paper-and-code.template.md")
    gone = {one.difference for one in (*variants_swaps.SWAPPED, *variants_swaps.whats())}
    gone -= {one.difference for one in (*few, *asked, *variants_rind.TRIGGERS)} | {"F3"}
    used = paper_and_code_page.MARK.sub(lambda m: "" if m[1] in gone else m[0], template)
    (tmp_path / "paper-and-code.template.md").write_text(used, encoding="utf-8")
    model = str(ROOT / "tests" / "parity" / "models" / "almanac-small")
    page = tmp_path / "page.md"
    arguments = [
        "--model", model, "--dataset", "almanac/iirc", "--limit", "2", "--dev-limit", "2",
        "--workers", "1", "--max-new-tokens", "24", "--output", str(tmp_path / "runs"), "--page", str(page),
    ]  # fmt: skip
    paper_and_code.main(arguments)
    text = page.read_text(encoding="utf-8")
    assert "{{" not in text
    assert "| `dragin, θ 1.2` | 1.2 |" in text
    assert "this is another model" in text
    assert "method (n = 2)" in text
    tables = [block for block in text.split("\n\n") if block.startswith("| ")]
    assert all(line.count("|") == table.split("\n")[0].count("|") for table in tables for line in table.splitlines())
    monkeypatch.setattr(paper_and_code.Bench, "_row", lambda *_: pytest.fail("computed twice"))
    paper_and_code.main(arguments)
    assert page.read_text(encoding="utf-8") == text


def test_every_difference_has_its_place() -> None:
    template = paper_and_code.TEMPLATE.read_text(encoding="utf-8")
    marks = set(paper_and_code_page.MARK.findall(template))
    measured = {s.difference for s in variants_rind.TRIGGERS} | {s.difference for s in variants_swaps.whats()}
    measured |= (
        {run.difference for run in variants_swaps.SWAPPED}
        | set(variants_scores.RULES)
        | {paper_and_code_page.FLARE_WHEN[0]}
    )
    assert measured - {"", "S0"} <= marks
    bases = {run.key for run in variants_swaps.SWAPPED}
    assert all(run.base is None or run.base in bases for run in variants_swaps.SWAPPED)


def test_the_code_that_the_page_names_is_there() -> None:
    template = paper_and_code.TEMPLATE.read_text(encoding="utf-8")
    homes = {
        path.stem: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "views"
    }
    classes = {
        name: value
        for home in (
            "triggers",
            "stops",
            "formulators",
            "gap",
            "scores",
            "paper",
            "dragin",
            "loop",
            "prompts",
            "trace",
            "sentences",
            "episode",
        )
        for name, value in vars(importlib.import_module(homes[home])).items()
        if isinstance(value, type)
    }
    named = re.findall(r"`([A-Za-z_]+)\.(_?[A-Za-z_]+)(?:\.([A-Za-z_]+))?", template)
    checked = 0
    for first, second, third in named:
        if first in homes and first not in ("docs", "model"):
            value = getattr(importlib.import_module(homes[first]), second)
            assert not third or hasattr(value, third), (first, second, third)
            checked += 1
        elif first in classes:
            fields = getattr(classes[first], "__dataclass_fields__", {})
            assert hasattr(classes[first], second) or second in fields, (first, second)
            checked += 1
    assert checked > 40


@pytest.mark.parametrize("wrong", [["--limit", "0"], ["--workers", "0"]])
def test_senseless_sizes_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        paper_and_code.options(wrong)
    assert "take 1 or more" in capsys.readouterr().err
