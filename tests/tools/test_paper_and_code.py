"""docs/paper-and-code.md: the code that it names is there, and what it says of figures stands in its tables."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dragin_lab"
PAGE = (ROOT / "docs" / "paper-and-code.md").read_text(encoding="utf-8")
CLAIM = re.compile(r"(ROC area|recall@3|EM) \(([^()]+)\): (\S+ \[[^\]]+\])")
CLASSES_IN = (
    "triggers", "stops", "formulators", "scores", "paper", "dragin", "loop", "prompts", "trace", "sentences",
    "episode",
)  # fmt: skip


def rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    lines = PAGE.split(f"### {heading}\n")[1].strip().split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`*") for cell in line.split("|")[1:-1]] for line in lines]


def measured() -> dict[tuple[str, str, str], str]:
    """(Number, measure, what was swapped) -> the difference, from the tables of every figure."""
    found, base = {}, ""
    for number, label, *_, difference in rows("Scores of a trigger"):
        base = base if number else label
        name = label if label.startswith("FLARE") else f"{base}, {label}"
        found[number, "ROC area", name] = difference
    found |= {(number, "recall@3", query): difference for number, query, _, _, difference, _ in rows("Queries")}
    return found | {(row[0], "EM", row[1]): row[7] for row in rows("Whole answers")}


def test_every_figure_of_a_difference_stands_in_the_tables_below() -> None:
    known = {(measure, name): difference for (_, measure, name), difference in measured().items()}
    claims = CLAIM.findall(PAGE)
    assert len(claims) > 60
    assert [claim for claim in claims if known[claim[0], claim[1]] != claim[2]] == []


def test_the_list_of_differences_holds_all_that_are_clear_of_0_and_no_other() -> None:
    def is_clear(difference: str) -> bool:
        low, high = map(float, re.search(r"\[(.+), (.+)\]", difference).groups())  # type: ignore[union-attr]
        return low > 0 or high < 0

    listed = re.findall(r"^- (.+?), (.+): (ROC area|recall@3|EM) (\S+ \[.+\])$", PAGE, re.MULTILINE)
    clear = {key: difference for key, difference in measured().items() if key[0] and is_clear(difference)}
    assert {(n, of, name.replace(": ", ", ")): difference for n, name, of, difference in listed} == clear
    sizes = [abs(float(difference.split()[0])) for *_, difference in listed]
    assert sizes == sorted(sizes, reverse=True)


def test_the_code_that_the_page_names_is_there() -> None:
    homes = {
        path.stem: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "views"
    }
    modules = [vars(importlib.import_module(homes[home])) for home in CLASSES_IN]
    classes = {name: value for module in modules for name, value in module.items() if isinstance(value, type)}
    checked = 0
    for first, second, third in re.findall(r"`([A-Za-z_]+)\.(_?[A-Za-z_]+)(?:\.([A-Za-z_]+))?", PAGE):
        if first in homes and first not in ("docs", "model"):
            value = getattr(importlib.import_module(homes[first]), second)
            assert not third or hasattr(value, third), (first, second, third)
            checked += 1
        elif first in classes:
            fields = getattr(classes[first], "__dataclass_fields__", {})
            assert hasattr(classes[first], second) or second in fields, (first, second)
            checked += 1
    assert checked > 40
