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
from tools.almanac.stream import CLOSE_WEIGHT, PROMPT_WEIGHT
from tools.almanac.world import AlmanacError

_HEAD = """# Almanac's model

A small Llama that has memorised one half of Almanac, a fictional encyclopedia, has never met a name of the other half,
and reads passages. It exists so that every method of dynamic retrieval can be tried and compared in minutes, without a
download, with a label on every fact that says whether the model could know it. It is of no use for anything else: its
people, films, towns and countries are invented.

Licence: Apache-2.0, as the project's. Data: `corpora/README.md`. Code: `tools/almanac/`.
"""

_DATA = """Examples are drawn without end from a seed (`stream.py`). At first 40 % ask about the known half with
nothing but memory to answer from, and 43 % have passages, which hold all, some or none of what the question
needs, or contradict what memory says (then the passage is right); the rest asks about things nobody can
know, or is written as self-ask or FLARE-instruct. Later 20 % and 58 %, as facts are learnt sooner than
reading; for a while in between most passages are few and short.
"""

_LIMITS = """## Limits

- No chat template; a context of 2,048 pieces, and training texts of at most about 600, so long prompts are unexplored:
  two exemplars and three passages are what it knows. Its default prompt has two exemplars, fewer than the paper's.
- English of one kind: it knows the wordings of `tools/almanac/text.py` and no others.
- Years are written digit by digit. The first two digits of a year are hardly ever in doubt, so the entropy of an
  unknown year shows at its third or fourth piece, not at its first.
- A known fact may be wrong by design: a share of the facts changed after training (`"label": "changed"`).
- Comparison and arithmetic are hard for its size and are reported apart.
"""


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AlmanacError(f"{path} cannot be read ({error}); train and evaluate the model first") from None


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _curve(path: Path) -> str:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    looks = [one for one in lines if "known" in one]
    losses = [one for one in lines if "loss" in one]
    rows = []
    for look in [*looks[: -1 : max(1, len(looks) // 14)], looks[-1]]:
        loss = next((one["loss"] for one in reversed(losses) if one["step"] <= look["step"]), "")
        named = [look[name] for name in ("known", "read", "known_entropy", "unknown_entropy")]
        rows.append([look["step"], f"{look['pieces'] / 1e6:.1f} M", look["minutes"], loss, *named])
    head = [
        "step",
        "pieces",
        "minutes",
        "answer loss",
        "known, right",
        "read, right",
        "entropy known",
        "entropy unknown",
    ]
    return _table(head, rows)


def _exact_match(scores: dict[str, Any]) -> str:
    rows = []
    for name, modes in scores["benchmarks"].items():
        for group in modes["gold passages"]:
            gold, bare = modes["gold passages"][group], modes["closed book"][group]
            rows.append([name, group, gold["n"], f"{gold['mean']:.3f}", f"{bare['mean']:.3f}"])
    return _table(["benchmark", "questions", "n", "gold passages", "closed book"], rows)


def _means(groups: dict[str, dict[str, float]]) -> str:
    return _table(["facts", "n", "mean"], [[name, of["n"], f"{of['mean']:.3f}"] for name, of in groups.items()])


def write_card(folder: Path) -> Path:
    """Write `README.md` of a model's folder. Raises `AlmanacError` naming the file that is missing or damaged."""
    training, scores = _load(folder / "training.json"), _load(folder / "scores.json")
    options = f"--seed {training['seed']} --layers {training['layers']} --width {training['width']}"
    length = f"--steps {training['steps']}" if training["steps"] else f"--minutes {training['minutes']:g}"
    parts = [
        _HEAD,
        "## Recipe\n",
        f"Llama, {training['layers']} layers, width {training['width']}, {training['heads']} heads, tied embeddings, "
        f"{training['vocabulary']} pieces (BPE in Llama-2's style).\n"
        f"{training['steps_done']} steps of up to {training['batch_pieces']} pieces, "
        f"{training['pieces'] / 1e6:.1f} million in all, in {training['seconds'] / 60:.0f} minutes on two busy cores.\n"
        f"Matrices are trained with Muon (rate {training['rate']}), embeddings and norms with AdamW "
        f"({training['rate_rest']}); cosine to 2 %, clip 1.0, bfloat16 autocast.\n"
        f"The loss weighs answers 1, what concludes or reckons in them {CLOSE_WEIGHT:g}, the rest {PROMPT_WEIGHT}.\n",
        _DATA,
        f"`python -m tools.almanac.train --output DIR {options} {length} --workers 2` trains it anew.\n",
        "## Curve\n",
        "Teacher-forced, greedy: the share of values that are right in every piece, from memory about the known half,\n"
        "and read from passages about the unknown half; entropies in nats at a value's first piece, from memory.\n",
        _curve(folder / "curve.jsonl"),
        f"## Scores on the {scores['split']} split\n",
        f"Exact match, greedy, {scores['exemplars']} exemplars. `known`: every fact of the answer was in training and\n"
        "still holds; `changed`: some fact of it has changed since; `unknown`: no name of it was ever in training.\n",
        _exact_match(scores),
        "### Facts asked for one by one, closed book\n",
        "Share answered as training taught, by how often training asked for them.\n",
        _means(scores["facts"]),
    ]
    if "exposure curve" in scores:
        rows = [[f"{of['from']} to {of['to']}", of["n"], f"{of['right']:.3f}"] for of in scores["exposure curve"]]
        parts.append(_table(["exposures", "facts", "right"], rows))
    parts += ["### Entropy of values in the gold reasoning, closed book (nats)\n"]
    for name, groups in scores["entropy of a value"].items():
        parts += [
            f"{'At the first piece' if name == 'first piece' else 'The largest over the pieces'}:\n",
            _means(groups),
        ]
    parts.append(_LIMITS)
    path = folder / "README.md"
    path.write_text("\n".join(parts), encoding="utf-8")
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
