"""Train a finished model a little further at a low rate: a habit goes, and what the model can do stays.

    python -m tools.almanac.refine MODEL --rate 0.1 --steps 400 --buffer 640 --export REFINED

A stage of ``train`` at the full rate moves all weights, so that what the model can do is drawn again; this one moves
them little. The rate falls to 0 from ``--rate`` times the run's own, and ``--buffer`` is the first buffer that it
reads: take one that the run has not read.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from dragin_lab.errors import DraginLabError
from tools.almanac.train import Run, Settings, export
from tools.almanac.world import AlmanacError


def refine(model: Path, rate: float, steps: int, buffer: int, folder: Path) -> Path:
    """Write the model that comes out of so many further steps.

    Raises ``AlmanacError`` where ``model`` is no folder of a trained model, ``folder`` exists, or a number is out of
    range.
    """
    if not 0 < rate <= 1 or steps < 1:
        raise AlmanacError(f"--rate {rate:g} --steps {steps}: give a share of the rate up to 1, and 1 step or more")
    if folder.exists():
        raise AlmanacError(f"{folder} exists; give another folder")
    try:
        training = json.loads((model / "training.json").read_text(encoding="utf-8"))
        folder.mkdir(parents=True)
        for name in ("tokenizer.json", "curve.jsonl"):
            shutil.copy(model / name, folder / name)
    except (OSError, ValueError) as error:
        raise AlmanacError(f"{model} cannot be read ({error}); give the folder of a trained model") from error
    run = Run(Settings(**{name: training[name] for name in Settings.__dataclass_fields__}), folder)
    run.begin_from(model)
    run.rates = [rate * full for full in run.rates]
    run.buffer = buffer
    run.train(decay=steps)
    export(run, folder, steps)
    refined = [*training.get("refined", ()), {"rate": rate, "steps": steps, "buffer": buffer}]
    record = training | json.loads((folder / "training.json").read_text(encoding="utf-8"))
    record |= {"decay": training["decay"], "refined": refined}
    (folder / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac.refine", description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="the folder of a finished model")
    parser.add_argument("--rate", type=float, default=0.1, help="of the run's own rate, at the start (default: 0.1)")
    parser.add_argument("--steps", type=int, default=400, help="over which the rate falls to 0 (default: 400)")
    parser.add_argument("--buffer", type=int, required=True, help="the first buffer of the stream that is read")
    parser.add_argument("--export", type=Path, required=True, help="the folder that is written")
    given = parser.parse_args(arguments)
    try:
        print(refine(given.model, given.rate, given.steps, given.buffer, given.export))
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
