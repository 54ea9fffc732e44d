"""The command line: ``dragin-lab ask``, ``run``, ``sweep``, ``table``, ``show`` and others.

Exit status: 0 done, 1 something failed on the way, 2 wrong usage or input, 130 interrupted.
"""

from __future__ import annotations

import difflib
import io
import os
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import rich_click as click
from click.exceptions import Exit

from dragin_lab import __version__
from dragin_lab.cli.corpus import corpus
from dragin_lab.cli.corpus_index import index
from dragin_lab.cli.corpus_search import search
from dragin_lab.cli.data import data
from dragin_lab.cli.methods import methods
from dragin_lab.cli.options import (
    NUMBER,
    build_method,
    check_corpus,
    check_retriever,
    check_tap,
    corpus_option,
    debug_option,
    decoding_option,
    layout_option,
    load_model,
    load_retriever,
    method_options,
    model_options,
    retriever_option,
    set_option,
    size_options,
    use_one_thread,
)
from dragin_lab.cli.outputs import (
    RunFailedError,
    check_apart,
    check_writable,
    coloured,
    counted,
    deliver,
    echo,
    make_folder,
    report_findings,
    warn_of_overrun,
)
from dragin_lab.cli.run import run
from dragin_lab.cli.show import show
from dragin_lab.cli.sweep import sweep
from dragin_lab.cli.table import browse, compare, table
from dragin_lab.core.method import PAPERS, Method
from dragin_lab.errors import DraginLabError, SettingError, TraceFileError

if TYPE_CHECKING:
    from dragin_lab.run.benchmark import Benchmark
    from dragin_lab.run.drivers import Stream
    from dragin_lab.trace.trace import Question

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.rich_config(
    {
        "max_width": 100,
        "style_options_panel_box": "SIMPLE",
        "style_commands_panel_box": "SIMPLE",
        "options_table_column_types": ["required", "opt_all", "help"],
        "options_table_help_sections": ["help", "deprecated", "envvar", "default", "required", "metavar"],
        "text_paragraph_linebreaks": "\n\n",
        "padding_helptext_first_line": (0, 0, 1, 0),
    }
)
@click.version_option(__version__, prog_name="dragin-lab")
@debug_option
def cli() -> None:
    """See, piece by piece, where a language model lacks information, what it looks for, and what that changes.

    Start with 'dragin-lab demo', or 'dragin-lab ask "Who …?"'. Exit status: 0 done, 1 something failed on the way,
    2 wrong usage or input, 130 interrupted.
    """


for command in (run, show, sweep, table, compare, browse, methods, data, corpus):
    cli.add_command(command)
for part in (index, search):
    corpus.add_command(part)


@cli.command(short_help="Answer a question and show where the method retrieved.")
@click.argument("question", required=False)
@click.option(
    "--dataset", panel="Question", help="Instead of QUESTION: the benchmark or file that it is in, with --id."
)
@click.option("--id", "qid", metavar="ID", panel="Question", help="The id of the question in --dataset.")
@click.option("--split", panel="Question", help="Of --dataset: Almanac's train, dev or test; default test.")
@method_options
@click.option(
    "--threshold",
    type=NUMBER,
    panel="Method",
    help="θ, from 0: on the RIND score for dragin (default 1.2; paper variant 0.25), on 1 - p for flare (default 0.1; "
    "paper variant 0.2).",
)
@click.option(
    "--top-n", type=int, panel="Method", help="Words (qfs) or tokens (last-n) of a query; default 25 with dragin."
)
@set_option()
@size_options(64)
@corpus_option
@retriever_option
@click.option(
    "--exemplars",
    panel="Prompt",
    help="Worked examples: a YAML file (question, rationale, answer), a benchmark's name for this package's own set, "
    "or published:NAME for the set published with the paper.",
)
@layout_option
@model_options
@decoding_option
@click.option("--seed", type=int, default=0, show_default=True, panel="Model", help="Seed of sampled decoding.")
@click.option("--gold", multiple=True, panel="Output", help="A right answer, to score against; may be repeated.")
@click.option("--save", panel="Output", help="Write the trace to this file; 'dragin-lab show' reads it.")
@click.option("--html", panel="Output", help="Write the trace as a page to this file.")
@debug_option
def ask(
    question: str | None,
    dataset: str | None,
    qid: str | None,
    split: str | None,
    corpus: str | None,
    corpus_fields: str | None,
    retriever: str | None,
    name: str,
    exemplars: str | None,
    layout: str,
    gold: tuple[str, ...],
    **options: Any,
) -> None:
    """Answer QUESTION and show where the method retrieved, what it asked, and what it found.

    With --dataset and --id it is asked as 'dragin-lab run' asks it, and answered the same.

    On a terminal the tokens appear as they are made. Ctrl-C ends it; what was done by then is shown and saved.
    """
    if options["model"] is None:
        use_one_thread()
    chosen = build_method(name, options)
    if (dataset is None) != (qid is None) or (question is None) == (qid is None):
        raise click.UsageError("give a QUESTION between quotes, or --dataset and --id")
    if dataset is None:
        check_question(question or "")
    check_tap(options)
    save, html = options["save"], options["html"]
    for path in (save, html):
        check_writable(path)
    check_apart(save, html)
    check_corpus(corpus, corpus_fields)
    check_retriever(retriever)
    from dragin_lab.run.benchmark import open_benchmark
    from dragin_lab.run.lab import Lab

    asked: str | Question = question or ""
    worked: Any = exemplars
    if dataset is not None:
        benchmark = open_benchmark(dataset, exemplars=exemplars, split=split)
        asked, worked = question_of(benchmark, str(qid)), benchmark.template
    asking: dict[str, Any] = {"exemplars": worked, "seed": options["seed"], "layout": layout}
    Lab(**asking)  # what is wrong with them is said before a model is loaded
    lm = load_model(options)
    check_length(asked if isinstance(asked, str) else asked.text, lm, chosen)
    if chosen.retrieves:
        asking["retriever"] = load_retriever(corpus, retriever, corpus_fields)
    events = Lab(lm, **asking).stream(asked, chosen, gold=gold or None)
    trace, delivered = events.trace, True
    try:
        follow(events)
    except (DraginLabError, MemoryError, RuntimeError) as error:
        if isinstance(error, SettingError) and not trace.continuations:
            raise
        raise RunFailedError(reason(error)) from error
    finally:
        events.close()
        if trace.continuations or trace.ended != "error":
            delivered = deliver(trace, save, html)
            warn_of_overrun(trace, lm.context_window)
    if not delivered:
        raise Exit(FAILED)


@cli.command(short_help="Check the installation and a model.")
@model_options
@debug_option
def doctor(**options: Any) -> None:
    """Check the installation, and that a model's attention can be captured and is what it should be."""
    from dragin_lab.cli.doctor import report

    check_tap(options)
    if bad := report_findings(report(lambda: load_model(options, check=False))):
        said = "is marked FAIL and needs" if bad == 1 else "are marked FAIL and need"
        raise RunFailedError(f"{bad} of the lines above {said} a repair")


@cli.command(short_help="Compare all methods on the embedded questions.")
@click.option("--limit", type=int, default=10, show_default=True, help="How many questions.")
@click.option("--output", default="runs/demo", show_default=True, help="Folder for the table and one trace.")
@click.option("--threshold", type=NUMBER, help="θ of dragin, on the RIND score; default 1.2; paper variant 0.25.")
@click.option("--flare-threshold", type=NUMBER, help="θ of flare, on 1 - p; default 0.1 (paper variant 0.2).")
@click.option("--top-n", type=int, help="Words of a query of dragin; default 25.")
@size_options(96)
@debug_option
def demo(limit: int, output: str, threshold: float | None, flare_threshold: float | None, **options: Any) -> None:
    """Answer questions on the embedded passages with every method of the paper, and compare.

    Ctrl-C ends it; the table then holds what was done by then.
    """
    use_one_thread()
    if limit < 1:
        raise click.UsageError(f"--limit {limit}: give 1 or more")
    sizes = {key: options[key] for key in ("variant", "top_k", "max_new_tokens")}
    own = {
        "dragin": {"threshold": threshold, "top_n": options["top_n"]},
        "flare": {"threshold": flare_threshold},
    }
    chosen = [build_method(name, sizes | own.get(name, {})) for name in PAPERS]
    if options["max_new_tokens"] is None:
        chosen = [replace(method, max_new_tokens=max(96, method.max_new_tokens)) for method in chosen]
    folder = make_folder(output)
    from dragin_lab.cli.demo import run_demo

    try:
        failures = run_demo(chosen, limit, folder, echo)
    except TraceFileError as error:
        raise RunFailedError(str(error)) from error
    if failures:
        first = (failures[0].splitlines() or ["?"])[0][:300]
        raise RunFailedError(f"{counted(len(failures), 'answer')} failed; the first with: {first}")


# -- what is checked before anything is loaded ------------------------------------------------------------------------


def check_question(question: str) -> None:
    if not question.strip():
        raise click.UsageError("the question is empty; write one between quotes")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(
            f"character {error.start + 1} of the question is not valid in the terminal's encoding; type it again"
        ) from None


def question_of(benchmark: Benchmark, qid: str) -> Question:
    """The question of that id. Raises ``SettingError`` with the nearest id where there is none."""
    known = {question.id: question for question in benchmark.questions}
    if qid not in known:
        near = difflib.get_close_matches(qid, known, n=1) or list(known)[:1]
        raise SettingError(f"{benchmark.name} has no question {qid!r}; did you mean {near[0]!r}?")
    return known[qid]


def check_length(question: str, lm: Any, method: Method) -> None:
    """Refuse a question that alone fills the context window; the reference variant, which never drops, goes on."""
    window = lm.context_window
    tokens = len(lm.tokenizer.encode(question, special=True))
    if window is None or tokens + method.max_new_tokens <= window or method.variant == "reference":
        return
    raise SettingError(
        f"the question has {tokens:,} tokens, which with {method.max_new_tokens} new ones do not fit into the context "
        f"window of {lm.name}, {window:,} tokens; shorten it, or use a model with a longer context"
    )


# -- an episode on the terminal ---------------------------------------------------------------------------------------


def follow(events: Stream) -> None:
    """Run an episode to its end; on a terminal, tokens appear as they are written.

    Every text that the model writes has a line of its own: a draft, what is written with passages, the answer. What is
    written with passages may go on after the sentence that is kept, and the next draft writes that part again.
    """
    from dragin_lab.run.drivers import Decided, Retrieved, StepDone, TokenWritten

    live, dim = sys.stderr.isatty(), coloured(sys.stderr)
    writing: tuple[int, str] | None = None

    def say(text: str, nl: bool = True) -> None:
        echo(text, nl=nl, err=True, dim=dim)

    try:
        for event in events if live else ():
            if isinstance(event, TokenWritten):
                begins = writing not in (None, (event.step, event.kind))
                say("\n" * begins + event.text, nl=False)
                writing = event.step, event.kind
                continue
            if isinstance(event, Decided) and event.decision.retrieve:
                line = f"  retrieving: {event.decision.reason}"
            elif isinstance(event, Retrieved):
                line = f"  {len(event.passages)} passages for: {event.query}"
            elif isinstance(event, StepDone) and event.step.continuation is not None:
                line = f"  kept: {event.step.kept.strip()}"
            else:
                continue
            say("\n" * (writing is not None) + line)
            writing = None
        for _ in events:  # to its end, where nobody watches
            pass
    finally:
        if live:
            echo("\n", err=True)


def reason(error: Exception) -> str:
    """What failed in an episode, in one or two lines."""
    if isinstance(error, DraginLabError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, MemoryError) or "out of memory" in lines[0].lower() or "allocate memory" in lines[0]:
        return (
            "the prompt is too long for this machine's memory; cut the corpus into shorter passages, lower --top-k, "
            "or use --variant paper, which drops what does not fit into the model's window"
        )
    return f"{type(error).__name__}: {lines[0][:300]}\n(run again with --debug for the details)"


# -- errors and exit status -------------------------------------------------------------------------------------------


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character still shows the rest
    code = status(args if args is not None else sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # What could not be written would be tried, and complained about, once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def status(args: list[str]) -> int:
    """Run one command; errors become one or two lines, with ``--debug`` a traceback too."""
    with warnings.catch_warnings():
        warnings.showwarning = _warn_all if "--debug" in args else _warn
        return _status(args)


def _status(args: list[str]) -> int:
    try:
        code = cli.main(args=args, prog_name="dragin-lab", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt) as error:
        return _complain(error, args, INTERRUPTED, "interrupted")
    except SystemExit as ended:  # by rich-click: no command was given, or nobody reads the output any more
        return DONE if isinstance(ended.__context__, BrokenPipeError) else int(ended.code or DONE)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = "dragin-lab" if context is None else context.command_path
        return _complain(error, args, USAGE, f"{error.format_message()}\n('{command} --help' lists what can be given)")
    except DraginLabError as error:
        return _complain(error, args, USAGE)
    except RunFailedError as error:
        return _complain(error, args, FAILED)
    except BrokenPipeError:  # as in '… | head': the reader has all that it wanted
        return DONE
    except Exception as error:  # noqa: BLE001 - the last line of defence names the error instead of a traceback
        return _complain(error, args, FAILED, reason(error))
    return code if isinstance(code, int) else DONE


def _complain(error: BaseException, args: list[str], code: int, text: str | None = None) -> int:
    if "--debug" in args:
        traceback.print_exception(error)
    echo(f"error: {text or error}" if code != INTERRUPTED else "\ninterrupted", err=True)
    return code


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    """Show our own warnings; those of libraries are for ``--debug``."""
    if Path(filename).is_relative_to(Path(__file__).parents[1]):
        echo(f"warning: {message}", err=True)


def _warn_all(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    echo(f"warning: {message} ({category.__name__}, {filename})", err=True)
