"""``dragin-lab run``, ``sweep`` and ``demo``: methods over benchmarks, by ``Lab.run``, and a table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.cli.methods import DEFAULT, build_methods, find_published, method_options, set_option
from dragin_lab.cli.options import (
    LOADING,
    POOL,
    benchmark_options,
    check_parts,
    debug_option,
    model_option,
    open_lab,
    pick_settings,
    use_one_thread,
)
from dragin_lab.cli.outputs import (
    RunFailedError,
    counted,
    echo,
    exemplars_line,
    make_folder,
    terminal_width,
    write_page,
)
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.errors import TraceFileError
from dragin_lab.files import as_path
from dragin_lab.run.benchmark import Benchmark, benchmark, check_run, run_folder
from dragin_lab.run.cache import Cache
from dragin_lab.run.cluster import Cluster, prepare_ray
from dragin_lab.run.lab import Lab
from dragin_lab.run.rundir import RunError, RunStoppedError, read_run
from dragin_lab.run.runwriter import NotWrittenError
from dragin_lab.run.worker import ClusterError, Recipe
from dragin_lab.study.runs import Runs
from dragin_lab.text import split_credentials, without_secrets

#: Questions of the demo side by side: a forward of many costs a small model little more than one of one.
DEMO_BATCH = 20
DEMO_TOP_N = 5  # words of a query: fewer than the words of these short texts
#: What ``sweep`` multiplies a method's own threshold by.
SWEPT = (0.4, 0.8, 1.0, 1.2, 2.0)

ray_option = click.option(
    "--ray", metavar="ADDRESS", panel="Run",
    help="Answer on a Ray cluster: the head's HOST:PORT, auto for this machine's cluster, or local to start one here; "
    "--set actors=4 says how many workers, gpus_per_actor and cpus_per_actor what each takes.",
)  # fmt: skip


@click.command(short_help="Run methods over benchmarks, and print the table.")
@method_options
@click.option(
    "--preset",
    panel="Method",
    help="Published settings where no option says otherwise: paper, released (the released configurations) or flare. "
    "For another model than --model: MODEL:SOURCE.",
)
@benchmark_options
@model_option
@click.option("--output", default="runs/bench", show_default=True, panel="Run", help="Folder of the run directories.")
@ray_option
@debug_option
def run(preset: str | None, output: str, **options: Any) -> None:
    """Run methods over benchmarks, each combination of settings in a folder of its own below --output. Several methods
    or values of a setting stand between commas.

    The same command continues where an earlier one was stopped, and retries what failed. It ends with a table of
    exact match, F1, retrievals and tokens per question, with 95 % intervals. Ctrl-C keeps all finished questions.
    """

    def methods_for(asked: Benchmark) -> list[Method]:
        published = None
        if preset is not None:
            if asked.template is None:
                raise click.UsageError(f"--preset {preset}: no settings were published for {asked.name}; leave it out")
            rule = asked.template.described["answer_rule"]
            published = find_published(preset, options["model"], options["names"], rule)
        return build_methods(options["names"], options["given"], published)[0]

    execute_runs(methods_for, output, options)


@click.command(short_help="Run a method over several values of a setting.")
@method_options
@benchmark_options
@model_option
@click.option("--output", default="runs/sweep", show_default=True, panel="Run", help="Folder of the run directories.")
@ray_option
@debug_option
def sweep(output: str, **options: Any) -> None:
    """Run methods over several values of one setting between commas, such as --set threshold=1.0,1.2,1.4.

    It is 'dragin-lab run', with a check that exactly one setting has several values. Where no value is given, one
    method goes over thresholds from 0.4 to 2 times its own.
    """
    names, given = options["names"], options["given"]
    methods, swept = build_methods(names, given)
    theta = methods[0].threshold
    if not (swept or "threshold" in given or theta is None) and len(methods) == 1:
        values = tuple(round(factor * theta, 6) for factor in SWEPT)
        methods, swept = build_methods(names, given | {"threshold": values})
    if len(swept) != 1:
        named = f"{', '.join(sorted(swept))} have" if swept else "none has"
        raise click.UsageError(f"a sweep goes over one setting, and {named} several values; give --set KEY=VALUE,VALUE")
    execute_runs(lambda _: methods, output, options)


@click.command(short_help="Compare the papers' methods on embedded questions.")
@click.option("--limit", type=int, default=10, show_default=True, help="How many questions.")
@click.option("--output", default="runs/demo", show_default=True, help="Folder of the runs, the table and one trace.")
@set_option
@debug_option
def demo(limit: int, output: str, **options: Any) -> None:
    """Answer embedded questions with every method of the DRAGIN and FLARE papers, and compare.

    It is 'dragin-lab run' on Almanac's development questions; besides, one trace is written as a page.
    """
    use_one_thread()
    if limit < 1:
        raise click.UsageError(f"--limit {limit}: give 1 or more")
    methods, _ = build_methods(tuple(PAPERS), options["given"])
    if "max_new_tokens" not in options["given"]:
        methods = [replace(method, max_new_tokens=max(96, method.max_new_tokens)) for method in methods]
    if "top_n" not in options["given"]:
        methods = [exchange_settings(m, top_n=DEMO_TOP_N) if m.name == DEFAULT else m for m in methods]
    asked = benchmark("almanac/2wikimultihopqa", limit=limit, split="dev")
    root = make_folder(output)
    if len(asked.questions) < limit:
        echo(f"--limit {limit}: there is no more than {counted(len(asked.questions), 'question')}")
    lab = Lab()
    folders = {method: run_folder(lab, method, asked, root) for method in methods}
    try:
        _run_all(lab, [(method, asked) for method in methods], root, {"batch_size": DEMO_BATCH, "traces": None})
    finally:
        if (runs := _read_runs(list(folders.values()))) is not None:
            (root / "table.txt").write_text(f"{runs.table()}\n", encoding="utf-8")
            _write_trace(runs, next(of for method, of in folders.items() if method.name == DEFAULT), root)


def _write_trace(runs: Runs, folder: Path, root: Path) -> None:
    """Write a trace of a run: where it retrieved and was right, best where few methods were."""
    answered = runs.outcomes[runs.outcomes["ended"] != "error"]
    right = answered.groupby("qid")["em"].mean()
    shown = _read_runs([folder])
    if shown is None:
        return
    rows = shown.outcomes.assign(others=shown.outcomes["qid"].map(right))
    rows = rows[(rows["retrievals"] > 0) & (rows["ended"] != "error")]
    if len(rows):
        row = rows.sort_values(["em", "others"], ascending=[False, True], kind="stable").iloc[0]
        trace = shown.kept_trace(shown.records[0], row["qid"])
        if trace is not None:
            trace.save(root / "dragin.trace")
            write_page(trace, root / "dragin.html")
            echo(f"\nOpen {root / 'dragin.html'}: {trace!r}")


# -- what is asked -----------------------------------------------------------------------------------------------------


def open_benchmarks(options: dict[str, Any]) -> list[Benchmark]:
    """The data sets that the options name, each under a name of its own."""
    for option, count in (("--limit", options["limit"]), ("--sample", options["sampled"])):
        if count is not None and count < 1:
            raise click.UsageError(f"{option} {count}: give 1 or more, or leave it out for all questions")
    chosen = {"limit": options["limit"], "sample": options["sampled"], "seed": options["seed"]}
    benchmarks: dict[str, Benchmark] = {}
    for source in dict.fromkeys(_split_sources(options["datasets"])):
        asked = benchmark(
            source, exemplars=options["exemplars"], split=options["split"], fields=options["fields"], **chosen
        )
        if asked.name in benchmarks:
            raise click.UsageError(f"--dataset {source}: another one is called {asked.name!r} too; run them one by one")
        benchmarks[asked.name] = asked
    return list(benchmarks.values())


def _split_sources(given: Sequence[str]) -> Iterator[str]:
    for value in given:
        if as_path(value).exists():  # a file's name may hold commas
            yield value
        else:
            yield from (part.strip() for part in value.split(","))


# -- running it -------------------------------------------------------------------------------------------------------


def execute_runs(methods_for: Callable[[Benchmark], Sequence[Method]], output: str, options: dict[str, Any]) -> None:
    """Run the methods for each data set of the options, and print the tables."""
    if options["batch_size"] < 1:
        raise click.UsageError(f"--batch-size {options['batch_size']}: give 1 or more")
    if options["ray"] is not None and options["store_folder"] is not None:
        raise click.UsageError("--store and --ray: a cache serves one process; leave out one of the two")
    _check_cluster(options)
    check_parts(options)
    wanted = [(method, asked) for asked in open_benchmarks(options) for method in methods_for(asked)]
    root = make_folder(output)
    searches = any(method.retrieves for method, _ in wanted)
    several = len(wanted) > len({asked.name for _, asked in wanted})
    with ExitStack() as stack:
        if options["ray"] is None:
            lab = open_lab(options, cache=stack.enter_context(_open_cache(options, several)))
        else:
            cluster = stack.enter_context(_open_cluster(options, searches))
            lab = Lab(cluster, seed=options["seed"], layout=options["layout"])
        _run_all(lab, wanted, root, options)
        if lab.cache is not None and options["store_folder"] is not None and lab.cache.counts.drafts:
            echo(f"\n{lab.cache.counts}")


def _run_all(lab: Lab, wanted: Sequence[tuple[Method, Benchmark]], root: Path, options: dict[str, Any]) -> None:
    """``Lab.run`` for each data set, and a table of each; ``RunFailedError`` where answers failed."""
    folders = {(method, asked): run_folder(lab, method, asked, root) for method, asked in wanted}
    for (method, asked), folder in folders.items():  # before any work is done
        check_run(lab, method, asked, folder, traces=options["traces"])
    for part in [lab.model, *([lab.retriever] if any(method.retrieves for method, _ in wanted) else [])]:
        echo(f"{part!r}")
    for line in dict.fromkeys(exemplars_line(lab.template(method, asked.template)) for method, asked in wanted):
        echo(line, nl=bool(line))
    echo(f"{counted(len(folders), 'run')} below {root}")
    for (method, asked), folder in folders.items():
        if (runs := _read_runs([folder])) is not None:
            done = len(runs.records[0].predictions) - len(runs.records[0].failed)
            if done:
                echo(f"{asked.name} {method.label}: {done:,} of {len(asked.questions):,} were already there")
    benchmarks = {asked: [method for method, of in folders if of is asked] for _, asked in folders}
    try:
        for asked, methods in benchmarks.items():
            lab.run(asked, methods, output=root, batch_size=options["batch_size"], traces=options["traces"])
    except RunStoppedError as error:
        raise RunFailedError(str(error)) from error
    except (ClusterError, NotWrittenError, TraceFileError) as error:
        raise RunFailedError(f"{error}\nThe same command continues from there") from error
    except KeyboardInterrupt:
        echo(f"\nwhat was finished is kept below {root}; the same command continues from there", err=True)
        raise
    finally:
        tables = [_read_runs([folders[method, asked] for method in methods]) for asked, methods in benchmarks.items()]
        for runs in filter(None, tables):
            echo(f"\n{runs.table().show(width=terminal_width())}")
    failed = [line for runs in filter(None, tables) for record in runs.records for line in record.failed]
    if failed:
        first = (failed[0]["error"].splitlines() or ["?"])[0][:300]
        raise RunFailedError(
            f"{counted(len(failed), 'answer')} failed; the first ({failed[0]['qid']}) with: {first}\n"
            "The same command tries them again"
        )


def _read_runs(folders: Sequence[Path]) -> Runs | None:
    """The runs that have answers by now; None where none has."""
    records = []
    for folder in folders:
        try:
            records.append(read_run(folder))
        except RunError:  # it was not begun; or it is damaged, which running it says
            continue
    records = [record for record in records if record.predictions]
    return Runs(records) if records else None


def _open_cache(options: dict[str, Any], several: bool) -> AbstractContextManager[Cache | None]:
    """The cache that the options ask for; by default one in memory where ``several`` runs ask the same questions."""
    if options["store_folder"] is not None:
        return Cache(options["store_folder"])
    return Cache() if several else nullcontext()


# -- on a cluster ------------------------------------------------------------------------------------------------------


def _check_cluster(options: dict[str, Any]) -> None:
    """Refuse what no cluster can be made of, before anything is loaded."""
    pool = pick_settings(options["given"], POOL)
    if options["ray"] is None:
        for name in pool:
            raise click.UsageError(f"--set {name}: says how a cluster is used; give --ray too")
        return
    for name in ("device_map", "quantization"):
        if name in options["given"]:
            raise click.UsageError(f"--set {name} and --ray: a worker loads its model whole; leave out one")
    if split_credentials(options["ray"])[0]:
        raise click.UsageError(f"--ray {without_secrets(options['ray'])}: Ray takes no password; leave it out")
    prepare_ray(options["ray"], **pool)


def _open_cluster(options: dict[str, Any], searches: bool) -> Cluster:
    """The cluster of the options, whose workers load what this process would have loaded."""
    named = {name: options[name] for name in ("model", "retriever", "corpus")}
    loading = pick_settings(options["given"], LOADING)
    recipe = Recipe(**named, **loading, searches=searches, fields=options["corpus_fields"])
    return Cluster(options["ray"], recipe, **pick_settings(options["given"], POOL))
