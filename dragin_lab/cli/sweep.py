"""``dragin-lab sweep``: one setting of a method over several values (the paper's Table 5)."""

from __future__ import annotations

from typing import Any

import rich_click as click

from dragin_lab.cli.cluster import cluster_options
from dragin_lab.cli.options import (
    NUMBER,
    Numbers,
    benchmark_options,
    debug_option,
    method_options,
    model_options,
    set_option,
    size_options,
    stated_settings,
)
from dragin_lab.cli.run import execute
from dragin_lab.core.method import method
from dragin_lab.core.triggers import Rind
from dragin_lab.run.sweeps import EQUATIONS, TABLE_5, swept


@click.command(short_help="Run a method over several values of a setting.")
@method_options
@click.option(
    "--threshold",
    type=Numbers(NUMBER),
    panel="Method",
    help="Values of θ, between commas. Default with rind, where --top-n is not swept: 0.1 to 0.5 with the paper "
    "variant, 1.0 to 1.4 (Table 5) on the released code's scale of scores.",
)
@click.option("--top-n", type=Numbers(click.INT), panel="Method", help="Values of top-n instead, between commas.")
@set_option(several=True)
@size_options()
@benchmark_options
@model_options
@click.option("--output", default="runs/sweep", show_default=True, panel="Run", help="Folder of the run directories.")
@cluster_options
@debug_option
def sweep(
    name: str, threshold: tuple[float, ...] | None, top_n: tuple[int, ...] | None, output: str, **options: Any
) -> None:
    """Run a method over several values of one setting: its threshold, the length of its queries, or any other (--set).

    Each value has a run directory below --output; the same command continues where an earlier one was stopped. It ends
    with a table of exact match, F1, retrievals and tokens per question, with 95 % intervals.
    """
    several = {"threshold": threshold and list(threshold), "top_n": top_n and list(top_n)}
    settings = stated_settings(name, options | several)
    if not any(isinstance(value, list) for value in settings.values()):
        one = method(name, **settings)
        if not isinstance(one.trigger, Rind):
            raise click.UsageError(f"give the values to go over, such as --threshold 0.05,0.1,0.2 for {name}")
        released = one.variant == "reference" or one.trigger.by_sentence
        settings["threshold"] = list(TABLE_5 if released else EQUATIONS)
    _, methods = swept(name, settings)
    execute(lambda _: methods, output, options)
