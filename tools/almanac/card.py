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

_HEAD = """---
language: en
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [retrieval-augmented-generation, dragin_lab, fictional]
---

# Almanac's model

A small Llama that has memorised one half of Almanac, a fictional encyclopedia, has never met a name of the other half,
and reads passages. It exists so that every method of dynamic retrieval can be tried and compared in minutes, without a
download, with a label on every fact that says whether the model could know it. It is of no use for anything else: its
people, films, towns and countries are invented.

Licence: Apache-2.0, as the project's. Data: `corpora/README.md`. Code: `tools/almanac/`.
"""

_DATA = """Examples are drawn without end from a seed (`stream.py`). Training starts from weights that can copy
(`net.py`), with drills: statements about look-alikes to be repeated in other words and in another order, and short
passages with a question for each of their facts. By stages come more look-alikes, longer passages, and scenes like
those of a retrieval: mostly one needed passage among neighbours that state the same of others. In every stage some
examples ask about the known half with nothing but memory to answer from, or about things nobody can know.
"""

_LIMITS = """## Limits

- No chat template; a context of 2,048 pieces, and training texts of at most about 600, so long prompts are unexplored:
  two exemplars and three passages are what it knows. Its default prompt has two exemplars, fewer than the paper's.
- English of one kind: it knows the wordings of `tools/almanac/text.py` and no others.
- A year is two pieces. The first two digits are hardly ever in doubt, so the entropy of an unknown year shows at its
  second piece.
- Without passages, asked about names that it never met, it now and then writes FLARE-instruct's `[Search(...)]`, which
  nobody asked for.
- A known fact may be wrong by design: a share of the facts changed after training (`"label": "changed"`).
- Its attention is partly taught. The loss asks five of its heads to look at certain places (`tools/almanac/net.py`):
  two so that it reads, three of the last layer so that, as in large models, the subject of a sentence and the facts in
  it draw attention. What DRAGIN makes of attention here says how the method works, not how much it gains elsewhere.
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
        named = [
            look[name] for name in ("known", "alone", "near", "compare", "reckon", "known_entropy", "unknown_entropy")
        ]
        rows.append([look["step"], f"{look['pieces'] / 1e6:.1f} M", look["minutes"], loss, *named])
    head = [
        "step",
        "pieces",
        "minutes",
        "answer loss",
        "known",
        "alone",
        "near",
        "compared",
        "reckoned",
        "entropy known",
        "entropy unknown",
    ]
    return _table(head, rows)


def _exact_match(scores: dict[str, Any]) -> str:
    rows = []
    for name, modes in scores["benchmarks"].items():
        for group in modes["gold passages"]:
            gold, bare = modes["gold passages"][group], modes["closed book"][group]
            among = modes["gold among three"][group]
            rows.append([name, group, gold["n"], *(f"{one['mean']:.3f}" for one in (gold, among, bare))])
        near = modes["near"].get("all", {"n": 0, "mean": float("nan")})
        rows.append([name, "first fact among near-duplicates", near["n"], "", f"{near['mean']:.3f}", ""])
    return _table(["benchmark", "questions", "n", "gold passages", "gold among three", "closed book"], rows)


def _again(training: dict[str, Any]) -> str:
    """How to make the model again, and what it is an average of."""
    sizes = " ".join(f"--{name} {training[name]}" for name in ("layers", "width", "inner", "heads"))
    command = f"python -m tools.almanac.train --output DIR --seed {training['seed']} {sizes} --workers 2"
    averaged = training.get("averaged")
    lines = []
    for one in averaged or [training]:
        steps = f"`{command} --steps {one['steps_done'] - one['decay']}`"
        branch = f"the same with `--decay {one['decay']} --export MODEL` in place of `--steps`"
        lines.append(f"{steps} from an empty DIR, then {branch}, trains it again.\n")
    if averaged:
        shares = ", ".join(f"{one['share']:g} of one at {one['pieces'] / 1e6:.1f} million pieces" for one in averaged)
        lines[0] = (
            f"Its weights are an average of {len(averaged)} models of this run (`average.py`), by shares chosen "
            f"on the development split:\n{shares}. Models whose rate fell at different times make different "
            f"mistakes, and their average makes fewer.\n\n{lines[0]}"
        )
    lines.append(
        "What the heads are taught to look at was added on the way (`tools/almanac/README.md`), so a run from the "
        "start gives a model of the same kind,\nnot these weights.\n"
    )
    return "\n".join(lines)


def _means(groups: dict[str, dict[str, float]]) -> str:
    return _table(["facts", "n", "mean"], [[name, of["n"], f"{of['mean']:.3f}"] for name, of in groups.items()])


def write_card(folder: Path) -> Path:
    """Write `README.md` of a model's folder. Raises `AlmanacError` naming the file that is missing or damaged."""
    training, scores = _load(folder / "training.json"), _load(folder / "scores.json")
    parts = [
        _HEAD,
        "## Recipe\n",
        f"Llama, {training['layers']} layers, width {training['width']}, {training['heads']} heads, tied embeddings, "
        f"{training['vocabulary']} pieces (unigram: one per word, two per name, one per two digits).\n"
        f"{training['steps_done']} steps of up to {training['batch_pieces']} pieces, "
        f"{training['pieces'] / 1e6:.1f} million in all, in {training['seconds'] / 60:.0f} minutes on two busy cores; "
        f"the rate is level, and falls to 0 over the last {training['decay']} steps.\n"
        f"Matrices are trained with Muon (rate {training['rate']}), embeddings and norms with AdamW "
        f"({training['rate_rest']}); clip 1.0, bfloat16 with weights in float32.\n"
        f"The loss weighs the values of facts 1, other words of an answer {WORDS}, the rest nothing.\n",
        _DATA,
        _again(training),
        "## Curve\n",
        "Teacher-forced, greedy: the share of values that are right in every piece: from memory about the known half,\n"
        "and read about the unknown half from the passage alone and with two look-alikes beside it; years compared\n"
        "and ages reckoned; the largest entropy of a value in nats, from memory.\n",
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
