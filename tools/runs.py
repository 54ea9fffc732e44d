"""Make the tables and curves that notebooks 03, 04, 07 and 09 read: Almanac's model on 50 questions
of each benchmark.

    python -m tools.runs        # half an hour; the same command goes on where it stopped

Settings are those that docs/results/almanac.md chose on the development split; questions are the
first of the test split, which alternate between the two halves of the world.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

# the embedded model's threads would only wait for one another
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd

import dragin_lab as dl
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.errors import DraginLabError
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.results import pieces
from dragin_lab.results.funnel import attributed_rows
from dragin_lab.run.rundir import CONFIG, PREDICTIONS, TIMINGS, encode_lines
from tools.base import CHOSEN, ROOT, RUNS

CORPORA = ROOT / "corpora"
JUDGING = run_path(str(ROOT / "docs/examples/judge_spans.py"))
#: Tokens of an answer, as in docs/results/almanac.md; self-ask's holds its questions too, and keeps
#: its own default.
NEW_TOKENS = 96
# of each benchmark, of which are attributed, and of them side by side
QUESTIONS, USED, BATCH = 50, 20, 16
#: Around the one that was chosen; below 1.4, the highest of Table 5, nothing changes on this model.
THETAS = (0.5, 1.4, 2.0, 2.5, 2.8, 3.0, 4.0, 6.0)


def made(name: str, variant: str = "reference", **changes: Any) -> Method:
    """A method with the settings chosen for the embedded model; ``changes`` replace some of
    them.
    """
    variant = variant if name in REFERENCE_METHODS else "paper"
    length = {} if name == "self-ask" else {"max_new_tokens": NEW_TOKENS}
    settings = {"label": f"{name} {variant}"} | CHOSEN[variant].get(name, {}) | length | changes
    return dl.method(name, variant=variant, **settings)


#: The tables, with their benchmarks and methods.
TABLES: dict[str, tuple[tuple[str, ...], list[Method]]] = {
    "methods": (BENCHMARKS, [*map(made, PAPERS), made("dragin", "paper"), made("flare", "paper")]),
    "used": (
        ("2wikimultihopqa",),
        [made(name, "paper", label=name) for name in ("sr-rag", "fs-rag", "flare", "dragin")],
    ),
    "thresholds": (
        ("hotpotqa",),
        [made("dragin", threshold=theta, label=f"θ {theta:g}") for theta in THETAS],
    ),
}


#: Down to which θ the curves go, and of which methods they are.
LOWEST, CURVED = 0.1, {"dragin": {"top_n": 5}, "flare": {}}
CURVE_QUESTIONS = 24  # each is answered four times


def record_curves(lab: dl.Lab) -> None:
    """A zip for each curve, without its traces."""
    for name, settings in CURVED.items():
        options: dict[str, Any] = {"limit": CURVE_QUESTIONS, "lowest": LOWEST}
        lab.curve("almanac/hotpotqa", name, output=RUNS / "curves", **options, **settings)
        (file,) = (RUNS / "curves").rglob(f"{name}*-curve/{pieces.PIECES}")
        with ZipFile(CORPORA / f"almanac_curve_{name}.zip", "w") as packed:
            for part in (pieces.CONFIG, pieces.PIECES):
                data = (file.parent / part).read_bytes()
                packed.writestr(ZipInfo(part), data, ZIP_DEFLATED)


def score_facts(lab: dl.Lab) -> Iterator[pd.DataFrame]:
    """Rows for the labelled facts of the first questions: degree, and each trigger's score on
    the fact's value.
    """
    alone = dl.method("wo-rag")
    for name in BENCHMARKS:
        asking = lab.replace(exemplars=dl.benchmark(f"almanac/{name}", limit=1).template)
        for split in ("dev", "test"):
            labels = dl.almanac.labels(name, split, QUESTIONS)
            spans = JUDGING["read_labels"](labels, asking.template(alone))
            scores = JUDGING["judge_spans"](asking, spans)[JUDGING["TRIGGERS"]]
            facts = [
                (split, one.id, fact.degree, fact.missing) for one in labels for fact in one.facts
            ]
            known = pd.DataFrame(facts, columns=["split", "id", "degree", "missing"])
            yield known.join(scores.round(5))


def pack(runs: dl.Runs, path: Path) -> Path:
    """The runs as one zip without their traces: each answer with its cause, and what its retrievals
    gave. The same runs give the same bytes.
    """
    with ZipFile(path, "w") as archive:
        for dataset, name in runs.compared("all").every:
            record, lines = None, []
            for id, line in runs.lines(dataset, name).items():
                record, _ = runs.record(id, name, dataset)
                cause = runs.cause(id, name, dataset)
                more = {} if cause is None else {"cause": [cause.kind, cause.why]}
                rows = attributed_rows(runs, record, id)
                lines.append(line | more | ({} if rows is None else {"attributed": rows}))
            if record is None:
                continue
            files = {
                CONFIG: (json.dumps(record.config, indent=1) + "\n").encode(),
                PREDICTIONS: encode_lines(lines),
                TIMINGS: encode_lines(record.timings.values()),
            }
            for file, data in files.items():
                member = ZipInfo(f"{dataset}/{name.replace('/', '-')}/{file}")  # dated 1980
                archive.writestr(member, data, ZIP_DEFLATED)
    return path


def main() -> None:
    lab = dl.Lab(cache=True)
    scores = pd.concat(score_facts(lab), ignore_index=True)
    scores.to_csv(
        CORPORA / "almanac_facts.csv.gz", index=False, compression={"method": "gzip", "mtime": 0}
    )
    for table, (benchmarks, methods) in TABLES.items():
        for name in benchmarks:
            used = table == "used"  # attributing an answer takes as long as giving it
            options = {"limit": USED if used else QUESTIONS, "batch_size": BATCH, "attribute": used}
            lab.run(f"almanac/{name}", methods, output=RUNS / table, **options)
        print(pack(dl.Runs.load(RUNS / table), CORPORA / f"almanac_{table}.zip"))
    record_curves(lab)


if __name__ == "__main__":
    try:
        main()
    except DraginLabError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on where it stopped")
