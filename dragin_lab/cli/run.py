"""``dragin-lab run`` and ``demo``: methods over benchmarks; ``table``: what was run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import rich_click as click

import dragin_lab as dl
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.cli import options as shared
from dragin_lab.cli.options import Given
from dragin_lab.cli.outputs import echo, terminal_width
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.data.paper import TITLES
from dragin_lab.data.presets import find_preset
from dragin_lab.errors import RunError, TraceFileError
from dragin_lab.files import as_path
from dragin_lab.results.table import FORMATS
from dragin_lab.run.benchmark import Benchmark, find_folders
from dragin_lab.run.rundir import read_run
from dragin_lab.views.facts import plural

#: Questions of the demo side by side: a forward of many costs a small model little more than one of
#: one.
DEMO_BATCH = 20
#: Tokens of its answers at least, and words of DRAGIN's queries: fewer than these short texts have.
DEMO_TOKENS = 96
DEMO_TOP_N = 5


_preset_option = shared.option(
    "Method",
    "--preset",
    "Published settings where no option says otherwise: paper, released (the released"
    " configurations) or flare. For another model than --model: MODEL:SOURCE.",
)
_output_option = click.option(
    "--output", default="runs/bench", panel="Run", help="Folder of the run directories."
)


@click.command(short_help="Run methods over benchmarks, and print the table.")
@shared.method_options
@_preset_option
@shared.benchmark_options
@_output_option
def run(preset: str | None, **options: Any) -> None:
    """Run methods over benchmarks, each combination of settings in a folder of its own below
    --output. Several methods or values of a setting stand between commas.

    The same command continues where an earlier one was stopped, and retries what failed. It ends
    with a table of exact match, F1, retrievals and tokens per question, with 95 % intervals. Ctrl-C
    keeps all finished questions.
    """
    shared.check_parts(options)
    wanted = {}
    several = False
    for asked in open_benchmarks(options):
        methods = choose_methods(asked, preset, options)
        wanted[asked] = methods
        several |= len(methods) > 1
    root = make_folder(options["output"])
    with shared.open_lab(options, cache=several) as lab:
        run_all(lab, wanted, root, batch_size=options["batch_size"])


def choose_methods(
    asked: Benchmark, preset: str | None, options: Mapping[str, Any]
) -> Sequence[Method]:
    """The methods that the options ask for, with the settings published for a benchmark."""
    given = shared.gather_settings(options)
    if preset is None:
        return shared.build_methods(options["names"], given)
    published = partial(read_preset, preset, asked, options["model"])
    return shared.build_methods(options["names"], given, published)


def read_preset(preset: str, asked: Benchmark, model: str | None, method: str) -> dict[str, Any]:
    """The published settings of a method for a benchmark's own prompt."""
    if asked.template is None:
        raise click.UsageError(
            f"--preset {preset}: no settings were published for {asked.name}; leave it out"
        )
    named, _, source = preset.rpartition(":")
    chosen = named or model
    if not chosen:
        raise click.UsageError(
            f"--preset {preset}: say for which model, as in llama2-7b-chat:{preset}"
        )
    rule = str(asked.template.answer_rule)  # of a benchmark it is a name
    return find_preset(chosen, rule, source=source, method=method).settings


@click.command(short_help="Compare the papers' methods on embedded questions.")
@click.option("--limit", callback=shared.check_count, default=10, help="How many questions.")
@click.option("--output", default="runs/demo", help="Folder of the runs and a page.")
@shared.set_option
def demo(limit: int, output: str, given: Given) -> None:
    """Answer embedded questions with every method of the DRAGIN and FLARE papers, and compare.

    It is 'dragin-lab run' on Almanac's development questions; besides, one trace is written as a
    page.
    """
    shared.use_one_thread()
    methods = shared.build_methods(PAPERS, given)
    if "max_new_tokens" not in given:
        methods = [
            exchange_settings(m, max_new_tokens=max(DEMO_TOKENS, m.max_new_tokens)) for m in methods
        ]
    if "top_n" not in given:
        methods = [
            exchange_settings(m, top_n=DEMO_TOP_N) if m.name == "dragin" else m for m in methods
        ]
    if not given:  # else a label says what was changed
        methods = [replace(m, own_label=m.name) for m in methods]
    asked = dl.benchmark("almanac/2wikimultihopqa", limit=limit, split="dev")
    root = make_folder(output)
    lab = dl.Lab(**shared.read_loading({"given": given}))
    (runs,) = run_all(lab, {asked: methods}, root, batch_size=DEMO_BATCH)
    rows = runs.outcomes.assign(others=runs.outcomes.groupby("id")["em"].transform("mean"))
    rows = rows[rows["method"].str.startswith("dragin") & (rows["retrievals"] > 0)]
    if len(rows):  # where it was right, best where few methods were
        shown = rows.sort_values(["em", "others"], ascending=[False, True], kind="stable").iloc[0]
        trace = runs.trace(shown["id"], shown["method"])
        echo(f"\nOpen {dl.page(root / 'dragin.html', trace)}: {trace!r}")


def open_benchmarks(options: dict[str, Any]) -> list[Benchmark]:
    """The data sets that the options name, each under a name of its own."""
    fields = shared.read_fields(options["given"], "fields")
    benchmarks: dict[str, Benchmark] = {}
    sources = [
        source.strip()
        for value in options["datasets"]  # a file's name may hold commas
        for source in ([value] if as_path(value).exists() else value.split(","))
    ]
    for source in dict.fromkeys(sources):
        asked = dl.benchmark(
            source, limit=options["limit"], exemplars=options["exemplars"], fields=fields
        )
        if asked.name in benchmarks:
            raise click.UsageError(
                f"--dataset {source}: another one is called {asked.name!r} too; run them one by one"
            )
        benchmarks[asked.name] = asked
    return list(benchmarks.values())


def make_folder(path: str) -> Path:
    folder = as_path(path, local=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(
            f"--output {path}: {error.strerror}; give a folder that can be written"
        ) from None
    if not os.access(folder, os.W_OK):
        raise click.UsageError(
            f"--output {path}: you may not write there; give a folder that can be written"
        )
    return folder


def run_all(
    lab: dl.Lab, wanted: Mapping[Benchmark, Sequence[Method]], root: Path, **how: Any
) -> list[dl.Runs]:
    """``Lab.run`` for each data set, and a table of each; ``RunError`` where answers
    failed.
    """
    # Before any work is done, as it refuses folders that hold other runs.
    folders = {
        asked: find_folders(lab.setup(*of), of, asked, root, None) for asked, of in wanted.items()
    }
    pairs = [(method, asked) for asked, methods in wanted.items() for method in methods]
    echo(repr(lab.model))
    if any(method.retrieves for method, _ in pairs):
        echo(repr(lab.retriever))
    templates = [lab.template(method, asked.template) for method, asked in pairs]
    for line in dict.fromkeys(
        f"{plural(len(t.exemplars), 'exemplar')}: {t.chosen}" for t in templates if t.chosen
    ):
        echo(line)
    echo(f"{plural(len(pairs), 'run')} below {root}")
    try:
        for asked, methods in wanted.items():
            lab.run(asked, methods, output=root, **how)
    except (RunError, TraceFileError) as error:
        if isinstance(error, RunError) and not error.begun:
            raise
        raise RunError(f"{error}\nThe same command continues from there", begun=True) from error
    except KeyboardInterrupt:
        echo(
            f"\nwhat was finished is kept below {root}; the same command continues from there",
            err=True,
        )
        raise
    finally:
        tables = [runs for of in folders.values() if (runs := _read_runs(of)) is not None]
        for runs in tables:
            echo(f"\n{runs.table().show(width=terminal_width())}")
    failed = [line for runs in tables for record in runs.records for line in record.failed]
    if failed:
        first = (failed[0]["error"].splitlines() or ["?"])[0][:300]
        raise RunError(
            f"{plural(len(failed), 'answer')} failed; the first ({failed[0]['id']}) with: {first}\n"
            "The same command tries them again",
            begun=True,
        )
    return tables


def _read_runs(folders: Sequence[Path]) -> dl.Runs | None:
    """The runs that have answers by now; None where none has."""
    records = []
    for folder in folders:
        try:
            records.append(read_run(folder))
        except RunError:  # it was not begun; or it is damaged, which running it says
            continue
    records = [record for record in records if record.predictions]
    return dl.Runs(records) if records else None


@click.command(short_help="Print runs as a table, alone or beside the paper's own.")
@click.argument("runs", nargs=-1, metavar="[N] [RUN]...")
@click.option(
    "--compare",
    metavar="ROW",
    help="Test the other rows against this one, such as dragin, in pairs.",
)
@click.option(
    "--format",
    "form",
    default="text",
    help=(
        f"One of {', '.join(FORMATS)}. Text is folded to the terminal's width, csv has all figures"
        " in full."
    ),
)
def table(runs: tuple[str, ...], form: str, compare: str | None) -> None:
    """Print one row for each method of the RUNs, of any benchmark and of files of your own: exact
    match, F1, retrievals and tokens per question with 95 % intervals, and how many answers could
    not be read. The methods stand in the order of the RUNs.

    With N (1 to 9): the paper's table N; in the result tables (2 to 7) our value stands beside the
    paper's. RUN is a run directory that 'dragin-lab run' wrote, or a folder of them; without any
    the paper's values stand alone. Runs on Almanac's data sets fill the columns of the benchmarks
    whose form they have, and are marked.
    """
    if not runs:
        raise click.UsageError(
            f"give run directories, or the number of a table of the paper, 1 to {max(TITLES)}"
        )
    first, *folders = runs
    if first.lstrip("-").isdecimal():
        report = dl.table(int(first), folders, compare=compare)
    else:
        report = dl.Runs.load(runs).table(compare=compare)
    echo(report.show(form, width=terminal_width()))
