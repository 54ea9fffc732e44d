"""``dragin-lab table``: a table of the paper with our own values beside the paper's."""

from __future__ import annotations

import rich_click as click

from dragin_lab.cli.options import Name, debug_option
from dragin_lab.cli.outputs import terminal_width
from dragin_lab.core.method import VARIANTS
from dragin_lab.data import paper
from dragin_lab.study.tables.layouts import NAMES
from dragin_lab.study.tables.shown import FORMATS
from dragin_lab.study.tables.table import table as make_table


@click.command(short_help="Print a table of the paper beside our own values.")
@click.argument("number", type=click.IntRange(1, max(paper.TITLES)), metavar="N")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
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
    help="Text is folded to the terminal's width; csv has all figures in full.",
)
@debug_option
def table(
    number: int, runs: tuple[str, ...], as_model: str | None, compare: str | None, variant: str | None,
    benchmark: str | None, form: str,
) -> None:  # fmt: skip
    """Print the paper's table N (1 to 9): its value in each cell, ours, and our 95 % bootstrap interval.

    RUN is a run directory that 'dragin-lab run' wrote, or a folder of them; without any the paper's values stand
    alone. Runs on Almanac's data sets fill the columns of the benchmarks whose form they have, and are marked. Cells
    that no run fills are listed at the end with the commands that make them.
    """
    made = make_table(
        number, runs, as_model=as_model, compare=compare, variant=variant, benchmark=benchmark,
    )  # fmt: skip
    click.echo(made.show(form, width=terminal_width()))
    if made.missing:
        click.echo("\n" + "\n".join(made.missing), err=True)
