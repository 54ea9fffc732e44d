"""Runs for other programs: what the Hub's library and MLflow read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from run_folders import write_run

from dragin_lab.run.rundir import RunError
from dragin_lab.study.sharing import SharingError, log_mlflow, save_dataset


def test_a_data_set_is_read_back_with_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    write_run(tmp_path / "runs", em=(1.0, None, 0.0))
    write_run(tmp_path / "runs", "wo-rag", em=(0.0, 1.0))
    folder = save_dataset(tmp_path / "runs", tmp_path / "shared")
    read = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert list(zip(read["run"], read["em"], strict=True)) == [
        ("dragin", 1.0), ("dragin", None), ("dragin", 0.0), ("wo-rag", 0.0), ("wo-rag", 1.0),
    ]  # fmt: skip
    assert read[0]["gold"] == ["Bo"]
    head = (folder / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    assert yaml.safe_load(head)["configs"][0]["data_files"] == "data/*.parquet"


@pytest.mark.slow
def test_mlflow_holds_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # artifacts of a local store go into the working folder
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    folder = write_run(tmp_path / "runs", em=(1.0, 0.0), threshold=0.8)
    [first] = log_mlflow(folder, store)
    assert log_mlflow(folder, store) == [first]
    data = mlflow.MlflowClient(store).get_run(first).data
    assert (data.params["threshold"], data.params["dataset"]) == ("0.8", "almanac/hotpotqa")
    assert data.metrics["em"] == 0.5
    names = {one.path for one in mlflow.MlflowClient(store).list_artifacts(first)}
    assert names == {"run.json", "predictions.jsonl"}


def test_what_cannot_be_shared_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        save_dataset(tmp_path, tmp_path / "out")
    write_run(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(SharingError, match="file"):
        save_dataset(tmp_path / "runs", tmp_path / "file")
