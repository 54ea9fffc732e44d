"""``dragin-lab run``: methods over benchmarks, each in a run directory of its own, and a table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import rich_click as click

from dragin_lab.cli.cluster import check_cluster, cluster_options, open_cluster
from dragin_lab.cli.methods import PerMethod, build_methods, published_settings
from dragin_lab.cli.options import (
    NUMBER,
    Names,
    benchmark_options,
    check_corpus,
    check_retriever,
    check_tap,
    debug_option,
    load_model,
    model_options,
    part_options,
    set_option,
    size_options,
    use_one_thread,
)
from dragin_lab.cli.outputs import RunFailedError, counted, echo, exemplars_line, make_folder, terminal_width
from dragin_lab.core.method import METHODS, Method, label
from dragin_lab.errors import TraceFileError
from dragin_lab.files import as_path
from dragin_lab.run.benchmark import Benchmark, check_run, open_benchmark, run_folder
from dragin_lab.run.cache import Cache
from dragin_lab.run.cluster import ClusterError
from dragin_lab.run.lab import Lab
from dragin_lab.run.rundir import RunError, RunRecord, RunStoppedError, read_run
from dragin_lab.run.runwriter import NotWrittenError
from dragin_lab.study.runs import Runs


@click.command(short_help="Run methods over benchmarks, and print the table.")
@click.option(
    "--method",
    "names",
    type=Names(tuple(METHODS)),
    default="dragin",
    show_default=True,
    panel="Method",
    help="The methods, between commas.",
)
@part_options(several=True)
@click.option(
    "--threshold",
    type=PerMethod(NUMBER),
    multiple=True,
    panel="Method",
    help="θ, or several; where methods measure differently with their name, as in flare=0.1. Default: the method's.",
)
@click.option(
    "--top-n",
    type=PerMethod(click.INT),
    multiple=True,
    panel="Method",
    help="Words (qfs) or tokens (last-n) of a query, or several; given as --threshold is. Default: the method's.",
)
@set_option()
@size_options(several=True)
@click.option(
    "--preset",
    panel="Method",
    help="Published settings where no option says otherwise: paper, released (the released configurations) or flare; "
    "of several between commas the first that has any. For another model than --model: MODEL:SOURCE.",
)
@benchmark_options
@model_options
@click.option("--output", default="runs/bench", show_default=True, panel="Run", help="Folder of the run directories.")
@cluster_options
@debug_option
def run(names: tuple[str, ...], preset: str | None, output: str, **options: Any) -> None:
    """Run methods over benchmarks, each combination of settings in a folder of its own below --output.

    The same command continues where an earlier one was stopped, and retries what failed. It ends with a table of
    exact match, F1, retrievals and tokens per question, with 95 % intervals. Ctrl-C keeps all finished questions.
    """

    def methods_for(one: Benchmark) -> list[Method]:
        if preset is None:
            return build_methods(names, options)
        if one.template is None:
            raise click.UsageError(f"--preset {preset}: no settings were published for {one.name}; leave it out")
        published = published_settings(preset, options["model"], names, one.template.described["answer_rule"])
        return build_methods(names, options, published)

    execute(methods_for, output, options)


# -- what is asked -----------------------------------------------------------------------------------------------------


def open_benchmarks(options: dict[str, Any]) -> list[Benchmark]:
    """The data sets that the options name, each under a name of its own."""
    for option, count in (("--limit", options["limit"]), ("--sample", options["sampled"])):
        if count is not None and count < 1:
            raise click.UsageError(f"{option} {count}: give 1 or more, or leave it out for all questions")
    chosen = {"limit": options["limit"], "sample": options["sampled"], "seed": options["seed"]}
    found: dict[str, Benchmark] = {}
    for source in dict.fromkeys(_sources(options["datasets"])):
        one = open_benchmark(
            source, exemplars=options["exemplars"], split=options["split"], fields=options["fields"], **chosen
        )
        if one.name in found:
            raise click.UsageError(f"--dataset {source}: another one is called {one.name!r} too; run them one by one")
        found[one.name] = one
    return list(found.values())


def _sources(given: Sequence[str]) -> Iterator[str]:
    for value in given:
        if as_path(value).exists():  # a file's name may hold commas
            yield value
        else:
            yield from (part.strip() for part in value.split(","))


# -- running it -------------------------------------------------------------------------------------------------------


def execute(methods_for: Callable[[Benchmark], Sequence[Method]], output: str, options: dict[str, Any]) -> None:
    """Run the methods for each data set of the options (``Lab.run``), and print what came of them."""
    if options["model"] is None:
        use_one_thread()
    if options["batch_size"] < 1:
        raise click.UsageError(f"--batch-size {options['batch_size']}: give 1 or more")
    if options["no_store"] and options["store_folder"] is not None:
        raise click.UsageError("--store and --no-store: give one of the two")
    if options["ray"] is not None and options["store_folder"] is not None:
        raise click.UsageError("--store and --ray: a cache serves one process; leave out one of the two")
    check_tap(options)
    check_cluster(options)
    if options["ray"] in (None, "local"):  # elsewhere the workers' machines have the passages
        check_corpus(options["corpus"], options["corpus_fields"])
    check_retriever(options["retriever"])
    wanted = [(m, one) for one in open_benchmarks(options) for m in methods_for(one)]
    root = make_folder(output)
    searching = any(m.retrieves for m, _ in wanted)
    settings: dict[str, Any] = {"seed": options["seed"], "layout": options["layout"]}
    several = len(wanted) > len({one.name for _, one in wanted})
    with ExitStack() as stack:
        if options["ray"] is None:
            passages = {
                "corpus": options["corpus"],
                "retriever": options["retriever"],
                "fields": options["corpus_fields"],
            }
            cache = stack.enter_context(_open_cache(options, several))
            lab = Lab(load_model(options), cache=cache, **passages, **settings)
        else:
            lab = Lab(stack.enter_context(open_cluster(options, searching)), **settings)
        _execute(wanted, lab, searching, root, options)


def _execute(
    wanted: Sequence[tuple[Method, Benchmark]], lab: Lab, searching: bool, root: Path, options: dict[str, Any]
) -> None:
    runs = [(m, one, run_folder(lab, m, one, root)) for m, one in wanted]
    for m, one, folder in runs:  # before any work is done
        check_run(lab, m, one, folder, traces=options["traces"])
    for part in [lab.model, *([lab.retriever] if searching else [])]:  # all are opened before anything is said
        echo(f"{part!r}")
    for line in dict.fromkeys(exemplars_line(lab.template(m, one.template)) for m, one in wanted):
        echo(line, nl=bool(line))
    echo(f"{counted(len(runs), 'run')} below {root}")
    for m, one, folder in runs:
        if (record := _read(folder)) is not None and (there := len(record.predictions) - len(record.failed)):
            echo(f"{one.name} {label(m)}: {there:,} of {len(one.questions):,} were already there")
    try:
        for one in dict.fromkeys(one for _, one, _ in runs):
            mine = [m for m, its, _ in runs if its is one]
            lab.run(one, mine, output=root, batch_size=options["batch_size"], traces=options["traces"])
        if lab.cache is not None and options["store_folder"] is not None and lab.cache.counts.drafts:
            echo(f"\n{lab.cache.counts}")
    except RunStoppedError as error:
        raise RunFailedError(str(error)) from error
    except (ClusterError, NotWrittenError, TraceFileError) as error:
        raise RunFailedError(f"{error}\nThe same command continues from there") from error
    except KeyboardInterrupt:
        echo(f"\nwhat was finished is kept below {root}; the same command continues from there", err=True)
        raise
    finally:
        records = _report(runs)
    failed = [line for record in records for line in record.failed]
    if failed:
        first = (failed[0]["error"].splitlines() or ["?"])[0][:300]
        raise RunFailedError(
            f"{counted(len(failed), 'answer')} failed; the first ({failed[0]['qid']}) with: {first}\n"
            "The same command tries them again"
        )


def _open_cache(options: dict[str, Any], several: bool) -> AbstractContextManager[Cache | None]:
    """The cache that the options ask for; by default one in memory where ``several`` runs ask the same questions."""
    if options["store_folder"] is not None:
        return Cache(options["store_folder"])
    wanted = several and not options["no_store"] and options["ray"] is None  # a cluster's workers share none
    return Cache() if wanted else nullcontext()


def _report(runs: Sequence[tuple[Method, Benchmark, Path]]) -> list[RunRecord]:
    """Print a table for each data set of what there is by now."""
    found: list[RunRecord] = []
    for one in dict.fromkeys(one for _, one, _ in runs):
        records = [_read(folder) for _, its, folder in runs if its is one]
        if mine := [record for record in records if record is not None and record.predictions]:
            found += mine
            echo(f"\n{Runs(mine).table().show(width=terminal_width())}")
    return found


def _read(folder: Path) -> RunRecord | None:
    try:
        return read_run(folder)
    except RunError:  # it was not begun; or it is damaged, which opening it says
        return None
