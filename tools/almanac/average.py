"""Average the weights of two models of one training run, which reads better than either.

    python -m tools.almanac.average EARLIER LATER --share 0.7 --export MODEL

Two models whose rate fell to 0 at different times make different mistakes; the average of their weights makes fewer
(model soups, Wortsman et al. 2022, arXiv 2203.05482). ``--share`` is chosen on the development split. Either may be an
average itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from dragin_lab.errors import DraginLabError
from tools.almanac.world import AlmanacError

#: What two models must have in common to be averaged, of ``training.json``.
SAME = ("seed", "layers", "width", "inner", "heads", "vocabulary")
#: What is said of each model in the ``training.json`` of their average.
SAID = ("steps_done", "decay", "pieces")


def average(earlier: Path, later: Path, share: float, folder: Path) -> Path:
    """Write a model whose weights are ``share`` of ``later``'s and the rest of ``earlier``'s; all else is ``later``'s.

    Raises ``AlmanacError`` where the share is not between 0 and 1, the models are not of one run, or ``folder`` exists.
    """
    if not 0 < share < 1:
        raise AlmanacError(f"--share is {share:g}; give a number between 0 and 1")
    if folder.exists():
        raise AlmanacError(f"{folder} exists; give another folder")
    first, second = (_training(one) for one in (earlier, later))
    if apart := [name for name in SAME if first[name] != second[name]]:
        raise AlmanacError(f"{earlier} and {later} differ in {', '.join(apart)}; give two models of one training run")
    old, new = (load_file(one / "model.safetensors") for one in (earlier, later))
    weights = {name: ((1 - share) * old[name].float() + share * new[name].float()).to(new[name].dtype) for name in new}
    shutil.copytree(later, folder, ignore=shutil.ignore_patterns("README.md", "scores.json", "knowledge.json"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    parts = _parts(first, 1 - share) + _parts(second, share)
    path = folder / "training.json"
    path.write_text(json.dumps(second | {"averaged": parts}, indent=2) + "\n", encoding="utf-8")
    return folder


def _parts(training: dict[str, Any], share: float) -> list[dict[str, Any]]:
    """The trained models that a share of an average consists of: one, or those of an average itself."""
    of = training.get("averaged") or [training | {"share": 1.0}]
    return [{"share": round(share * one["share"], 6)} | {name: one[name] for name in SAID} for one in of]


def _training(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "training.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AlmanacError(f"{folder / 'training.json'} cannot be read ({error}); give a model's folder") from error


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac.average", description=__doc__.split("\n")[0])
    parser.add_argument("earlier", type=Path, help="a model's folder")
    parser.add_argument("later", type=Path, help="another of the same training run")
    parser.add_argument("--share", type=float, default=0.5, help="of the later one, between 0 and 1 (default: 0.5)")
    parser.add_argument("--export", type=Path, required=True, help="the folder that is written")
    given = parser.parse_args(arguments)
    try:
        print(average(given.earlier, given.later, given.share, given.export))
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
