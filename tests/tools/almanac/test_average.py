"""The average of two models of one run: its weights, its record, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tools.almanac.average import average, main
from tools.almanac.world import AlmanacError


def model(folder: Path, value: float, **changes: Any) -> Path:
    folder.mkdir()
    save_file({"w": torch.full((2, 3), value, dtype=torch.bfloat16)}, folder / "model.safetensors")
    training = {"seed": 0, "layers": 1, "width": 2, "inner": 3, "heads": 1, "vocabulary": 9} | changes
    training |= {"steps_done": int(value), "decay": 1, "pieces": 10}
    (folder / "training.json").write_text(json.dumps(training), encoding="utf-8")
    (folder / "scores.json").write_text("{}", encoding="utf-8")
    return folder


def test_weights_are_averaged_and_what_was_averaged_is_recorded(tmp_path: Path) -> None:
    earlier, later = model(tmp_path / "a", 4.0), model(tmp_path / "b", 8.0)
    assert main([str(earlier), str(later), "--share", "0.75", "--export", str(tmp_path / "c")]) == 0
    made = load_file(tmp_path / "c" / "model.safetensors")["w"]
    assert made.dtype == torch.bfloat16
    assert made.tolist() == [[7.0] * 3] * 2
    training = json.loads((tmp_path / "c" / "training.json").read_text())
    assert [(one["share"], one["steps_done"]) for one in training["averaged"]] == [(0.25, 4), (0.75, 8)]
    assert not (tmp_path / "c" / "scores.json").exists()  # they are the later model's


def test_an_average_of_an_average_names_all_that_were_trained(tmp_path: Path) -> None:
    first, second, third = (model(tmp_path / name, value) for name, value in (("a", 4.0), ("b", 8.0), ("c", 10.0)))
    both = average(first, second, 0.5, tmp_path / "ab")
    average(both, third, 0.75, tmp_path / "abc")
    training = json.loads((tmp_path / "abc" / "training.json").read_text())
    assert [(one["share"], one["steps_done"]) for one in training["averaged"]] == [(0.125, 4), (0.125, 8), (0.75, 10)]


def test_models_that_do_not_belong_together_are_refused_by_name(tmp_path: Path) -> None:
    earlier, later = model(tmp_path / "a", 4.0), model(tmp_path / "b", 8.0, width=3)
    with pytest.raises(AlmanacError, match=r"differ in width; give two models of one training run"):
        average(earlier, later, 0.5, tmp_path / "c")
    with pytest.raises(AlmanacError, match=r"--share is 1; give a number between 0 and 1"):
        average(earlier, earlier, 1.0, tmp_path / "c")
    with pytest.raises(AlmanacError, match=r"b exists; give another folder"):
        average(earlier, earlier, 0.5, later)
    (earlier / "training.json").unlink()
    with pytest.raises(AlmanacError, match=r"training\.json cannot be read"):
        average(earlier, later, 0.5, tmp_path / "c")
