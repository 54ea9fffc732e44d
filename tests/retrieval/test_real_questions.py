"""What benchmarks/real_questions.py counts, and the section that it becomes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import loaded

from dragin_lab.trace.trace import Passage

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark() -> Any:
    return loaded("benchmarks/real_questions.py")


def hits(**scores: float) -> list[Passage]:
    return [Passage(name, "", "x", score) for name, score in scores.items()]


def test_recall_counts_gold_passages(benchmark: Any) -> None:
    answers = [hits(a=3, b=2, c=1, d=0.5), hits(x=1)]
    recalls = benchmark.recalls(answers, [{"a", "d"}, {"y"}])
    assert [recalls[f"R@{k}"][0] for k in (3, 10, 100)] == [0.25, 0.5, 0.5]
    mean, low, high = recalls["R@3"]
    assert low <= mean <= high


def test_ndcg_of_what_is_found_first_second_and_never(benchmark: Any) -> None:
    assert benchmark._ndcg([True, False], 1) == 1
    assert benchmark._ndcg([False, True], 1) == pytest.approx(0.6309, abs=1e-4)
    assert benchmark._ndcg([False] * 10, 3) == 0
    assert benchmark._ndcg([True] * 10, 40) == 1


def test_agreement_tells_ties_from_differences(benchmark: Any) -> None:
    one = hits(a=3, b=2, c=1)
    others = [one, hits(a=3, c=2, b=1), hits(a=3, b=2, d=1 + 1e-9), hits(a=3, b=2, d=1.1), hits(a=3, b=2)]
    assert benchmark.agreement([one] * 5, others) == {"questions": 5, "same": 1, "by ties": 2}


def test_missing_data_is_named(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "iirc").mkdir()
    monkeypatch.setattr(sys, "argv", ["real_questions.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        benchmark.main()
    assert caught.value.code == 2
    assert "holds no hotpotqa, 2wikimultihopqa, strategyqa, scifact, passages" in capsys.readouterr().err
