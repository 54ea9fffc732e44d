"""Runs for other programs: as a Hugging Face data set folder, and as MLflow runs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dragin_lab.errors import DraginLabError, MissingPackageError
from dragin_lab.files import as_path, not_saved, write_whole
from dragin_lab.run.lines import summary
from dragin_lab.run.rundir import CONFIG, PREDICTIONS, RunRecord, find_runs

Folders = str | Path | Iterable[str | Path]

_FILE = "data/train-00000-of-00001.parquet"
_SAME = "dragin_lab.fingerprint"  # the tag that tells a run that was logged before
_CARD = """---
pretty_name: {name}
task_categories: [question-answering]
tags: [retrieval-augmented-generation, dragin_lab]
configs:
  - config_name: default
    data_files: data/*.parquet
---

# {name}

What {count} answered, one row per question and run, written by dragin_lab {version}. The columns are those of a run's
`predictions.jsonl`, after `run` (its folder), `method`, `variant`, `dataset`, `model` and `retriever`.

| run | data set | model | questions | EM | F1 | retrievals | pieces |
|---|---|---|---|---|---|---|---|
{rows}
"""


class SharingError(DraginLabError):
    """Runs that cannot be exported: a folder that cannot be written, or a tracking server that refuses."""


def save_dataset(runs: Folders, folder: str | Path) -> Path:
    """Write runs as a data set that ``datasets.load_dataset(folder)`` reads and the Hub takes as it is.

    The folder gets one parquet file with a row per question and run, and a card with the Hub's YAML header. ``runs``
    are run directories, or folders of them.

    Raises ``RunError`` where there is no run, ``SharingError`` where the folder cannot be written,
    ``MissingPackageError`` without pyarrow.
    """
    import pandas as pd

    from dragin_lab import __version__

    records = find_runs(runs)
    target = as_path(folder)
    frame = pd.concat([pd.DataFrame(_about(one) | line for line in one.predictions) for one in records])
    count = f"{len(records)} run{'s' * (len(records) != 1)}"
    rows = "\n".join(_row(one) for one in records)
    try:
        (target / _FILE).parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(target / _FILE, index=False)
        card = _CARD.format(name=target.resolve().name, count=count, version=__version__, rows=rows)
        write_whole(target / "README.md", card.encode())
    except ImportError as error:
        raise MissingPackageError("a data set needs pyarrow; run pip install 'dragin-lab[sharing]'") from error
    except OSError as error:
        raise SharingError(not_saved(target, error)) from error
    return target


def log_mlflow(runs: Folders, tracking_uri: str, experiment: str = "dragin_lab") -> list[str]:
    """Log run directories to MLflow, one MLflow run for each; returns their ids, in the order of the folders.

    Parameters are the method's settings, model, retriever and data set; metrics are the means over the questions with
    their 95 % intervals; artifacts are ``run.json`` and ``predictions.jsonl``. A run that was logged before with the
    same content is not logged again. ``tracking_uri`` is a server, or "sqlite:///FILE".

    Raises ``RunError`` where there is no run, ``SharingError`` where MLflow refuses, ``MissingPackageError`` without
    MLflow.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise MissingPackageError("MLflow is not installed; run pip install 'dragin-lab[sharing]'") from error
    records = find_runs(runs)
    try:
        client = MlflowClient(tracking_uri)
        found = client.get_experiment_by_name(experiment)
        place = found.experiment_id if found else client.create_experiment(experiment)
        return [_log(client, place, one) for one in records]
    except MlflowException as error:
        raise SharingError(f"MLflow at {tracking_uri}: {str(error).splitlines()[0][:300]}") from error


def _log(client: Any, place: str, record: RunRecord) -> str:
    files = [record.folder / name for name in (CONFIG, PREDICTIONS)]
    same = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    if before := client.search_runs([place], f"tags.`{_SAME}` = '{same}'", max_results=1):
        return str(before[0].info.run_id)
    about = _about(record)
    made = client.create_run(place, tags={_SAME: same}, run_name=f"{about['dataset']}/{about['run']}").info.run_id
    for key, value in (about | record.config["method"]).items():
        client.log_param(made, key, value)
    for key, value in summary(record.predictions).items():
        if math.isfinite(value):
            client.log_metric(made, key, value)
    for path in files:
        client.log_artifact(made, str(path))
    client.set_terminated(made, "FINISHED" if record.complete else "KILLED")
    return str(made)


def _about(record: RunRecord) -> dict[str, Any]:
    """What tells the rows of one run from those of another."""
    config = record.config
    retriever = config["retriever"] or {}
    return {
        "run": record.folder.name,
        "method": config["method"]["name"],
        "variant": config["method"].get("variant", ""),
        "dataset": config["dataset"]["name"],
        "model": config["model"].get("model", ""),
        "retriever": retriever.get("kind", ""),
    }


def _row(record: RunRecord) -> str:
    about, means = _about(record), summary(record.predictions)
    figures = [f"{means['em']:.3f}", f"{means['f1']:.3f}", f"{means['retrievals']:.2f}", f"{means['pieces']:.1f}"]
    cells = [about["run"], about["dataset"], about["model"], f"{means['n']:.0f}", *figures]
    return f"| {' | '.join(cells)} |"
