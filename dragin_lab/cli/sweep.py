"""``dragin-lab sweep``: one setting of a method over several values (the paper's Table 5)."""

from __future__ import annotations

from typing import Any

import rich_click as click

from dragin_lab.cli.cluster import cluster_options
from dragin_lab.cli.options import (
    Numbers,
    benchmark_options,
    build_method,
    debug_option,
    method_options,
    model_options,
    size_options,
)
from dragin_lab.cli.run import execute
from dragin_lab.core.method import METHODS
from dragin_lab.run.sweeps import TABLE_5, swept


@click.command(short_help="Run a method over several values of a setting.")
@method_options
@click.option(
    "--threshold",
    type=Numbers(click.FLOAT),
    panel="Method",
    help="Values of θ, between commas. Default with dragin, where --top-n is not swept: 1.0 to 1.4, as in Table 5.",
)
@click.option("--top-n", type=Numbers(click.INT), panel="Method", help="Values of top-n instead, between commas.")
@size_options()
@benchmark_options
@model_options
@click.option("--output", default="runs/sweep", show_default=True, panel="Run", help="Folder of the run directories.")
@cluster_options
@debug_option
def sweep(
    name: str, threshold: tuple[float, ...] | None, top_n: tuple[int, ...] | None, output: str, **options: Any
) -> None:
    """Run a method over several values of its threshold, or of the length of its queries.

    Each value has a run directory below --output; the same command goes on where an earlier one was stopped. It ends
    with a table of exact match, F1, retrievals and pieces a question, with 95 % intervals.
    """
    made = build_method(name, options)
    if threshold is None and top_n is None:
        if made.when.name != METHODS["dragin"][0]:
            raise click.UsageError(f"give the values to go over, such as --threshold 0.05,0.1,0.2 for {name}")
        threshold = TABLE_5
    if threshold is not None and top_n is not None:
        raise click.UsageError("a sweep goes over one setting: give either --threshold or --top-n")
    setting, methods = swept(made, thresholds=threshold, top_ns=top_n)
    execute(lambda _: methods, output, options, lambda method: f"{setting} {getattr(method, setting)}")
