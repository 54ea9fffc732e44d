"""Write the figures that README.md, docs/measured.md, docs/corpora.md and docs/how-to/served.md show.

    python -m tools.pages.figures [--measured]

Runs the demo for README.md (not with --measured); the two pages hold what is found, as benchmarks wrote it into
benchmarks/results/. How long things take stands in docs/performance.md (tools/pages/performance.py).
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from dragin_lab.cli.app import status
from dragin_lab.core.method import PAPERS
from dragin_lab.study.runs import Runs
from tools.pages.base import DOCS, RESULTS, ROOT, bracketed, markdown_table
from tools.pages.performance_sections import show_served


def put_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME… -->`` and ``<!-- end -->`` in a file."""
    old = path.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- {name}[^>]*-->\n).*?(<!-- end -->)", re.DOTALL)
    if not block.search(old):
        sys.exit(f"{path} has no block <!-- {name} --> … <!-- end -->")
    path.write_text(block.sub(lambda m: f"{m[1]}{text}{m[2]}", old), encoding="utf-8")
    print(path)


def demo_table() -> str:
    """The means of the demo's methods, in the order of the paper's Table 1."""
    with tempfile.TemporaryDirectory() as folder:
        if (code := status(["demo", "--output", folder])) != 0:
            sys.exit(code)
        runs = {record.config["method"]["name"]: record for record in Runs.load(folder).records}
        table = Runs([runs[name] for name in PAPERS]).table().choose(["mean"]).show()
    rows = re.search(r"^method\n(.*?)\n\n", table, re.DOTALL | re.MULTILINE)
    heading = next(line for line in table.splitlines() if "retrievals" in line)
    assert rows is not None
    return f"{heading}\n{rows[1]}"


def real_questions_section(found: dict) -> str:
    """What ``benchmarks/real_questions.py`` wrote: recall of gold passages, SciFact, and how far back ends agree."""
    libraries = ", ".join(f"{name} {number}" for name, number in found["libraries"].items())
    depths = ("R@3", "R@10", "R@100")
    lines = [
        "The question is the query. Brackets: 95 % intervals. *Plain*: a BM25 with k1 0.9, b 0.4 and plural "
        f"stemming on the same files. {found['passages']:,} passages; {libraries}.\n",
        "| questions | n | back end | " + " | ".join(depths) + " | plain |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["recall"]:
        plain = " / ".join(f"{value:.3f}" for value in found["plain"][row["dataset"]])
        values = " | ".join(bracketed(*row[depth]) for depth in depths)
        lines.append(f"| {row['dataset']} | {row['n']} | {row['backend']} | {values} | {plain} |")
    lines += [
        f"\nSciFact. Anserini publishes nDCG@10 {found['published_ndcg']:.4f} and recall@100 "
        f"{found['published_recall']:.4f} for k1 0.9, b 0.4 over one field.\n",
        "| back end | k1 | b | title and text as | n | nDCG@10 | recall@100 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["scifact"]:
        fields = "one field" if row["one_field"] else "best field + 0.5 × the other"
        ndcg, recall = (bracketed(*row[name], digits=4) for name in ("ndcg", "recall"))
        lines.append(f"| {row['backend']} | {row['k1']:g} | {row['b']:g} | {fields} | {row['n']} | {ndcg} | {recall} |")
    both = found["agreement"]
    return "\n".join(lines) + (
        f"\n\nThe back ends find the same first three passages, in the same order, for {both['same']} of the "
        f"{both['questions']} questions; of the others, {both['by ties']} differ by equal scores alone.\n"
    )


def corpora_figures() -> str:
    """What docs/corpora.md says of both kinds of BM25 on SciFact, and of building and searching a million passages."""
    found = json.loads((RESULTS / "real_questions.json").read_text(encoding="utf-8"))
    built = json.loads((RESULTS / "corpus.json").read_text(encoding="utf-8"))["budgets"]
    rows = [
        (
            f"{row['backend']}, {'one field' if row['one_field'] else 'two fields'}",
            f"{row['k1']:g}, {row['b']:g}",
            *(f"{row[name][0]:.4f}" for name in ("ndcg", "recall")),
        )
        for row in found["scifact"]
    ]
    rows.append(("Anserini, one field", "0.9, 0.4", found["published_ndcg"], found["published_recall"]))
    both = found["agreement"]
    return "\n".join(
        [
            markdown_table(("SciFact (BEIR, 300 claims)", "k1, b", "nDCG@10", "recall@100"), rows),
            "",
            f"`bm25` and `tantivy` find the same first three passages, in the same order, for {both['same']} of "
            f"{both['questions']} real questions ([measured.md](measured.md)).\n",
            markdown_table(
                ("`benchmarks/corpus.py`", "measured", "at most"),
                [
                    (one["what"], f"{one['measured']:.3g} {one['unit']}", f"{one['at_most']:g} {one['unit']}")
                    for one in built
                ],
            ),
            "",
        ]
    )


def served_figures() -> str:
    """What docs/how-to/served.md says of how long llama.cpp and transformers take, and why."""
    found = json.loads((RESULTS / "served.json").read_text(encoding="utf-8"))
    ratios = {
        method: engines["llama.cpp Q4_1"]["cpu_s"] / engines["transformers float32"]["cpu_s"]
        for method, engines in found["methods"].items()
    }
    less = " It gains less where passages have to be read than where text is only written."
    lines = show_served(found)
    lines.append(
        "Of the processor time in float32, llama.cpp takes "
        + " and ".join(f"{ratio:.2f} for `{method}`" for method, ratio in ratios.items())
        + f".{less * (ratios['flare'] > ratios['wo-rag'])}\n"
    )
    return "\n".join(lines)


SECTIONS = {"real_questions": real_questions_section}


def measured() -> str:
    """Every benchmark's file as a section."""
    parts = [
        "# Measured\n\nWritten by `tools/pages/figures.py` from `benchmarks/results/`. How long things take stands in "
        "[performance.md](performance.md).\n"
    ]
    for name, write in SECTIONS.items():
        path = RESULTS / f"{name}.json"
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            parts.append(f"\n## {name}\n\n`python benchmarks/{name}.py`\n\n{write(found)}")
    return "".join(parts)


def main() -> None:
    if "--measured" not in sys.argv[1:]:
        put_demo_table()
    if RESULTS.is_dir():
        (DOCS / "measured.md").write_text(measured(), encoding="utf-8")
        print(DOCS / "measured.md")
        put_between(DOCS / "corpora.md", "figures", corpora_figures())
        put_between(DOCS / "how-to" / "served.md", "figures", served_figures())


def put_demo_table() -> None:
    put_between(ROOT / "README.md", "demo-table", f"```\n{demo_table().rstrip()}\n```\n")


if __name__ == "__main__":
    main()
