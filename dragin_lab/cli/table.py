"""``dragin-lab table``: runs as a table, alone or beside the paper's."""

from __future__ import annotations

from typing import Any

import rich_click as click

from dragin_lab.cli.options import Name, debug_option
from dragin_lab.cli.outputs import echo, terminal_width
from dragin_lab.core.method import VARIANTS
from dragin_lab.data import paper
from dragin_lab.study.paper_cells import NAMES
from dragin_lab.study.paper_tables import table as make_table
from dragin_lab.study.runs import Runs
from dragin_lab.study.table import FORMATS, Table


def _print(table: Table, form: str) -> None:
    echo(table.show(form, width=terminal_width()))


@click.command(short_help="Print runs as a table, alone or beside the paper's own.")
@click.argument("runs", nargs=-1, metavar="[N] [RUN]...")
@click.option(
    "--as",
    "as_model",
    type=Name(tuple(sorted(set(paper.MODELS.values())))),
    help="The paper's model that the runs are compared with. The paper's own are known by their Hugging Face ids; any "
    "other stands beside the rows of all three.",
)
@click.option("--compare", metavar="ROW", help="Test the other rows against this one, such as dragin, in pairs.")
@click.option(
    "--variant", type=Name(VARIANTS), help="Take runs of this variant; default reference where both are there."
)
@click.option(
    "--dataset",
    "benchmark",
    type=Name(tuple(NAMES)),
    help="Take our values of Tables 4 to 6 from this benchmark; default iirc for 4, hotpotqa for 5 and 6.",
)
@click.option(
    "--format",
    "form",
    type=Name(FORMATS),
    default="text",
    show_default=True,
    help="Text is folded to the terminal's width; csv has all figures in full; latex needs the package booktabs.",
)
@debug_option
def table(runs: tuple[str, ...], form: str, compare: str | None, **options: Any) -> None:
    """Print one row for each method of the RUNs, of any benchmark and of files of your own: exact match, F1,
    retrievals and tokens per question with 95 % intervals, and how many answers could not be read. The methods stand in
    the order of the RUNs.

    With N (1 to 9): the paper's table N; in the result tables (2 to 7) our value stands beside the paper's. RUN is a
    run directory that 'dragin-lab run' wrote, or a folder of them; without any the paper's values stand alone. Runs on
    Almanac's data sets fill the columns of the benchmarks whose form they have, and are marked.
    """
    if not runs or not runs[0].lstrip("-").isdecimal():
        if used := [name for name, value in options.items() if value is not None]:
            names = {"as_model": "--as", "benchmark": "--dataset"}
            option = names.get(used[0], "--variant")
            raise click.UsageError(f"{option} goes with a table of the paper; give its number")
        if not runs:
            raise click.UsageError(
                f"give run directories, or the number of a table of the paper, 1 to {len(paper.TITLES)}"
            )
        _print(Runs.load(runs).table(compare=compare), form)
        return
    number = click.IntRange(1, max(paper.TITLES)).convert(int(runs[0]), None, None)
    _print(make_table(number, runs[1:], compare=compare, **options), form)
