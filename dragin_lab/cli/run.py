"""``dragin-lab run``, ``sweep`` and ``demo``: methods over benchmarks, by ``Lab.run``;
``table``: what was run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import rich_click as click

import dragin_lab as dl
from dragin_lab.catalog.by_name import exchange_settings
from dragin_lab.cli import options as shared
from dragin_lab.cli.options import Budget, Given
from dragin_lab.cli.outputs import RunFailedError, echo, terminal_width
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.data.paper import TITLES
from dragin_lab.data.presets import find_preset
from dragin_lab.errors import TraceFileError
from dragin_lab.files import as_path
from dragin_lab.run.benchmark import Benchmark, find_folders
from dragin_lab.run.cluster import ClusterError, Recipe, prepare_ray
from dragin_lab.run.rundir import RunError, RunStoppedError, read_run
from dragin_lab.run.runwriter import NotWrittenError
from dragin_lab.study.table import FORMATS
from dragin_lab.views.facts import count

#: Questions of the demo side by side: a forward of many costs a small model little more than one of
#: one.
DEMO_BATCH = 20
#: Tokens of its answers at least, and words of DRAGIN's queries: fewer than these short texts have.
DEMO_TOKENS, DEMO_TOP_N = 96, 5
#: What ``sweep`` multiplies a method's own threshold by.
SWEPT = (0.4, 0.8, 1.0, 1.2, 2.0)


@click.command(short_help="Run methods over benchmarks, and print the table.")
@shared.method_options
@shared.option(
    "Method",
    "--preset",
    "Published settings where no option says otherwise: paper, released (the released"
    " configurations) or flare. For another model than --model: MODEL:SOURCE.",
)
@shared.benchmark_options
@click.option("--output", default="runs/bench", panel="Run", help="Folder of the run directories.")
def run(preset: str | None, **options: Any) -> None:
    """Run methods over benchmarks, each combination of settings in a folder of its own below
    --output. Several methods or values of a setting stand between commas.

    The same command continues where an earlier one was stopped, and retries what failed. It ends
    with a table of exact match, F1, retrievals and tokens per question, with 95 % intervals. Ctrl-C
    keeps all finished questions.
    """

    def methods_for(asked: Benchmark, budget: Budget | None) -> list[Method]:
        def published(name: str) -> dict[str, Any]:
            if preset is None:
                return {}
            if asked.template is None:
                raise click.UsageError(
                    f"--preset {preset}: no settings were published for {asked.name}; leave it out"
                )
            model, _, source = preset.rpartition(":")
            if not (model or options["model"]):
                raise click.UsageError(
                    f"--preset {preset}: say for which model, as in llama2-7b-chat:{preset}"
                )
            rule = asked.template.described["answer_rule"]
            return find_preset(model or options["model"], rule, source=source, method=name).settings

        return shared.build_methods(options["names"], options["given"], published, budget)[0]

    execute_runs(methods_for, options)


@click.command(short_help="Run a method over several values of a setting.")
@shared.method_options
@shared.benchmark_options
@click.option("--output", default="runs/sweep", panel="Run", help="Folder of the run directories.")
def sweep(**options: Any) -> None:
    """Run methods over several values of one setting between commas, such as --set
    threshold=1.0,1.2,1.4.

    It is 'dragin-lab run', with a check that exactly one setting has several values. Where no value
    is given, one method goes over thresholds from 0.4 to 2 times its own.
    """

    def methods_for(asked: Benchmark, budget: Budget | None) -> list[Method]:
        names, given = options["names"], options["given"]
        methods, swept = shared.build_methods(names, given, budget=budget)
        theta = methods[0].threshold
        if not (swept or "threshold" in given or theta is None) and len(methods) == 1:
            values = tuple(round(factor * theta, 6) for factor in SWEPT)
            methods, swept = shared.build_methods(names, {**given, "threshold": values})
        if len(swept) != 1:
            named = f"{', '.join(sorted(swept))} have" if swept else "none has"
            several = f"a sweep goes over one setting, and {named} several values"
            raise click.UsageError(f"{several}; give --set KEY=VALUE,VALUE")
        return methods

    execute_runs(methods_for, options)


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
    methods, _ = shared.build_methods(PAPERS, given)
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
    (runs,) = run_all(dl.Lab(), {asked: methods}, root, batch_size=DEMO_BATCH)
    rows = runs.outcomes.assign(others=runs.outcomes.groupby("id")["em"].transform("mean"))
    rows = rows[rows["method"].str.startswith("dragin") & (rows["retrievals"] > 0)]
    if len(rows):  # where it was right, best where few methods were
        shown = rows.sort_values(["em", "others"], ascending=[False, True], kind="stable").iloc[0]
        trace = runs.trace(shown["id"], shown["method"])
        echo(f"\nOpen {dl.page(root / 'dragin.html', trace)}: {trace!r}")


def execute_runs(
    methods_for: Callable[[Benchmark, Budget | None], Sequence[Method]], options: dict[str, Any]
) -> None:
    """Run the methods for each data set of the options, and print the tables."""
    given, address = options["given"], options["ray"]
    pool, loading = (
        shared.pick_settings(given, shared.POOL),
        shared.pick_settings(given, shared.LOADING),
    )
    if address is None and pool:
        raise click.UsageError(f"--set {min(pool)}: says how a cluster is used; give --ray too")
    if address is not None:
        if options["store"] is not None:
            raise click.UsageError(
                "--store and --ray: a cache serves one process; leave out one of the two"
            )
        for name in given.keys() & {"device_map", "quantization"}:
            raise click.UsageError(
                f"--set {name} and --ray: a worker loads its model whole; leave out one"
            )
        prepare_ray(address, **pool)
    shared.check_parts(options)
    store = None if options["store"] is None else as_path(options["store"])
    # until a model is open
    unknown: Budget | None = None if address else lambda method, retrievals: 0.0
    wanted = {asked: methods_for(asked, unknown) for asked in open_benchmarks(options)}
    root = make_folder(options["output"])
    how = {"batch_size": options["batch_size"], "traces": options["traces"]}
    if address is not None:
        searches = any(method.retrieves for methods in wanted.values() for method in methods)
        named = {name: options[name] for name in ("model", "retriever", "corpus")}
        recipe = Recipe(**named, **loading, searches=searches, fields=options["corpus_fields"])
        with dl.Cluster(address, recipe, **pool) as cluster:
            run_all(
                dl.Lab(cluster, seed=options["seed"], layout=options["layout"]), wanted, root, **how
            )
        return
    several = any(len(methods) > 1 for methods in wanted.values())
    with shared.open_lab(options, cache=store or several) as lab:
        found = {
            asked: methods_for(asked, partial(find_budget, lab, asked, options["batch_size"]))
            for asked in wanted
        }
        run_all(lab, found, root, **how)
        if store is not None and lab.cache is not None and lab.cache.counts.drafts:
            echo(f"\n{lab.cache.counts}")


def find_budget(
    lab: dl.Lab, asked: Benchmark, batch_size: int, method: Method, retrievals: float
) -> float:
    """θ of a budget on the questions that are asked, printed with what it reached."""
    if asked.part is not None:
        raise click.UsageError(
            f"threshold=budget:{retrievals:g} and --part: each part would find another θ; find it"
            " once, and give it"
        )
    theta = lab.budget(asked, retrievals, method, batch_size=batch_size)
    on = count(theta.questions, "question")
    echo(
        f"{asked.name} {method.name}: θ {theta:g}, by {theta.reached:.3g} retrievals a question,"
        f" counted on {on}"
    )
    return theta


def open_benchmarks(options: dict[str, Any]) -> list[Benchmark]:
    """The data sets that the options name, each under a name of its own."""
    chosen = {
        key: options[key]
        for key in ("limit", "sample", "part", "seed", "exemplars", "split", "fields")
    }
    benchmarks: dict[str, Benchmark] = {}
    sources = [
        source.strip()
        for value in options["datasets"]  # a file's name may hold commas
        for source in ([value] if as_path(value).exists() else value.split(","))
    ]
    for source in dict.fromkeys(sources):
        asked = dl.benchmark(source, **chosen)
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
    """``Lab.run`` for each data set, and a table of each; ``RunFailedError`` where answers
    failed.
    """
    # Before any work is done, as it refuses folders that hold other runs.
    folders = {
        asked: find_folders(lab.setup(*of), of, asked, root, how.get("traces"))
        for asked, of in wanted.items()
    }
    pairs = [(method, asked) for asked, methods in wanted.items() for method in methods]
    for part in [
        lab.model,
        *([lab.retriever] if any(method.retrieves for method, _ in pairs) else []),
    ]:
        echo(f"{part!r}")
    templates = [lab.template(method, asked.template) for method, asked in pairs]
    for line in dict.fromkeys(
        f"{count(len(t.exemplars), 'exemplar')}: {t.chosen}" for t in templates if t.chosen
    ):
        echo(line)
    echo(f"{count(len(pairs), 'run')} below {root}")
    try:
        for asked, methods in wanted.items():
            lab.run(asked, methods, output=root, **how)
    except RunStoppedError as error:
        raise RunFailedError(str(error)) from error
    except (ClusterError, NotWrittenError, TraceFileError) as error:
        raise RunFailedError(f"{error}\nThe same command continues from there") from error
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
        raise RunFailedError(
            f"{count(len(failed), 'answer')} failed; the first ({failed[0]['id']}) with: {first}\n"
            "The same command tries them again"
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
    "--as",
    "as_model",
    help="The paper's model to compare with, where it is not told by the runs' model.",
)
@click.option(
    "--compare",
    metavar="ROW",
    help="Test the other rows against this one, such as dragin, in pairs.",
)
@click.option("--variant", help="Take the runs of this variant, where both fit a cell.")
@click.option(
    "--format",
    "form",
    default="text",
    help=(
        f"One of {', '.join(FORMATS)}. Text is folded to the terminal's width, csv has all figures"
        " in full."
    ),
)
@click.option("--columns", help="Measures and parts to show, by their headings: EM,F1,95 %.")
def table(
    runs: tuple[str, ...], form: str, compare: str | None, columns: str | None, **options: Any
) -> None:
    """Print one row for each method of the RUNs, of any benchmark and of files of your own: exact
    match, F1, retrievals and tokens per question with 95 % intervals, and how many answers could
    not be read. The methods stand in the order of the RUNs.

    With N (1 to 9): the paper's table N; in the result tables (2 to 7) our value stands beside the
    paper's. RUN is a run directory that 'dragin-lab run' wrote, or a folder of them; without any
    the paper's values stand alone. Runs on Almanac's data sets fill the columns of the benchmarks
    whose form they have, and are marked.
    """
    if runs and runs[0].lstrip("-").isdecimal():
        made = dl.table(int(runs[0]), runs[1:], compare=compare, **options)
    elif used := [name for name, value in options.items() if value is not None]:
        named = "--as" if used[0] == "as_model" else "--variant"
        raise click.UsageError(f"{named} goes with a table of the paper; give its number")
    elif not runs:
        raise click.UsageError(
            f"give run directories, or the number of a table of the paper, 1 to {max(TITLES)}"
        )
    else:
        made = dl.Runs.load(runs).table(compare=compare)
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    echo(made.show(form, width=terminal_width(), columns=chosen))
