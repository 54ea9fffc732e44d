"""The model card of Almanac's model, written from what training and evaluation left in its folder.

`python -m tools.almanac.card --model DIR` reads `training.json`, `curve.jsonl`, `scores.json`; writes `README.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from dragin_lab.almanac import embedded_model_path
from dragin_lab.errors import DraginLabError
from tools.almanac.drills import WORDS
from tools.almanac.world import AlmanacError
from tools.pages.base import fill_template, markdown_table


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AlmanacError(f"{path} cannot be read ({error}); train and evaluate the model first") from None


def _show_curve(path: Path) -> str:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    looks = [one for one in lines if "known" in one]
    losses = [one for one in lines if "loss" in one]
    shares = ("known", "alone", "near", "compare", "reckon", "known_entropy", "unknown_entropy")
    rows = []
    for look in [*looks[: -1 : max(1, len(looks) // 14)], looks[-1]]:
        loss = next((one["loss"] for one in reversed(losses) if one["step"] <= look["step"]), "")
        at = (look["step"], f"{look['pieces'] / 1e6:.1f} M", look["minutes"], loss)
        rows.append([*at, *(look[name] for name in shares)])
    head = ("step", "pieces", "minutes", "answer loss", "known", "alone", "near", "compared", "reckoned")
    return markdown_table((*head, "entropy known", "entropy unknown"), rows)


def _show_exact_match(scores: dict[str, Any]) -> str:
    rows = []
    for name, modes in scores["benchmarks"].items():
        for group in modes["gold passages"]:
            gold, bare = modes["gold passages"][group], modes["closed book"][group]
            among = modes["gold among three"][group]
            rows.append([name, group, gold["n"], *(f"{one['mean']:.3f}" for one in (gold, among, bare))])
        near = modes["near"].get("all", {"n": 0, "mean": float("nan")})
        rows.append([name, "first fact among near-duplicates", near["n"], "", f"{near['mean']:.3f}", ""])
    return markdown_table(("benchmark", "questions", "n", "gold passages", "gold among three", "closed book"), rows)


def _show_means(groups: dict[str, dict[str, float]]) -> str:
    return markdown_table(("facts", "n", "mean"), [[name, of["n"], f"{of['mean']:.3f}"] for name, of in groups.items()])


def write_card(folder: Path) -> Path:
    """Write `README.md` of a model's folder. Raises `AlmanacError` naming the file that is missing or damaged."""
    training, scores = _load(folder / "training.json"), _load(folder / "scores.json")
    sizes = " ".join(f"--{name} {training[name]}" for name in ("layers", "width", "inner", "heads"))
    exposures = [
        [f"{of['from']} to {of['to']}", of["n"], f"{of['right']:.3f}"] for of in scores.get("exposure curve", ())
    ]
    card = fill_template(
        "card.md.jinja",
        training=training,
        scores=scores,
        words_weight=WORDS,
        command=f"python -m tools.almanac.train --output DIR --seed {training['seed']} {sizes} --workers 2",
        curve=_show_curve(folder / "curve.jsonl"),
        exact_match=_show_exact_match(scores),
        exposures=markdown_table(("exposures", "facts", "right"), exposures) if exposures else "",
        means=_show_means,
    )
    path = folder / "README.md"
    path.write_text(card, encoding="utf-8")
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac.card", description="Write the model card.")
    parser.add_argument("--model", type=Path, default=embedded_model_path())
    given = parser.parse_args(arguments)
    try:
        print(write_card(given.model))
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
