"""``dragin-lab sweep``: one setting of a method over several values (the paper's Table 5)."""

from __future__ import annotations

from typing import Any

import click

from dragin_lab.cli.cluster import cluster_options
from dragin_lab.cli.options import Name, benchmark_options, build_method, debug_option, model_options, size_options
from dragin_lab.cli.run import execute
from dragin_lab.core.method import METHODS, WHATS, WHENS
from dragin_lab.run.sweeps import TABLE_5, swept


class Numbers(click.ParamType):
    """Numbers between commas."""

    name = "value,…"

    def __init__(self, kind: click.ParamType) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self.kind.convert(part.strip(), param, ctx) for part in str(value).split(","))


@click.command(short_help="Run a method over several values of a setting.")
@model_options
@cluster_options
@benchmark_options
@click.option("--method", "name", type=Name(tuple(METHODS)), default="dragin", show_default=True, help="The method.")
@click.option("--when", type=Name(WHENS.names()), help="When to retrieve, instead of the method's own.")
@click.option("--what", type=Name(WHATS.names()), help="What to ask for, instead of the method's own.")
@click.option(
    "--threshold",
    type=Numbers(click.FLOAT),
    help="Values of θ, between commas. Default with dragin, where --top-n is not swept: 1.0 to 1.4, as in Table 5.",
)
@click.option("--top-n", type=Numbers(click.INT), help="Values of top-n instead, between commas.")
@size_options()
@click.option("--output", default="runs/sweep", show_default=True, help="Folder of the run directories.")
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
    execute(lambda _: methods, output, options, lambda method: f"{getattr(method, setting)}", setting)
