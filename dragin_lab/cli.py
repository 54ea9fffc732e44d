"""The command line: ``dragin-lab ask``, ``show``, ``demo``, ``doctor``.

Exit status: 0 done, 1 something failed on the way, 2 wrong usage or input, 130 interrupted.
"""

from __future__ import annotations

import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dragin_lab import __version__
from dragin_lab.errors import DraginLabError, TraceFileError
from dragin_lab.methods import METHODS, VARIANTS, WHATS, WHENS, Method
from dragin_lab.prompts import PromptTemplate

if TYPE_CHECKING:
    from dragin_lab.run import Stream
    from dragin_lab.trace import Trace

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class RunFailedError(Exception):
    """Something failed after the work had begun; what was done is kept."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dragin-lab")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """See, piece by piece, where a language model lacks information, what it looks for, and what that changes."""


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose a model."""
    for option in (
        click.option("--heads", help="Heads to capture, such as 0,3,5; default all."),
        click.option("--layer", default="last", show_default=True, help="Layer to capture: last, or an index."),
        click.option("--dtype", help="float32, bfloat16 or float16; default by device."),
        click.option("--device", help="cpu or cuda; default the first GPU, else the CPU."),
        click.option("--model", help="A folder or a Hugging Face id; default the embedded model."),
    ):
        command = option(command)
    return command


def method_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that set a method."""
    for option in (
        click.option(
            "--max-new-tokens", type=int, default=64, show_default=True, help="Bounds a draft and the answer."
        ),
        click.option("--top-k", type=int, help="Passages a retrieval; default 3."),
        click.option("--top-n", type=int, help="Words (qfs) or pieces (last-n) of a query; default 25."),
        click.option("--threshold", type=float, help="θ: on the RIND score, for flare on 1 - p."),
        click.option("--what", type=click.Choice(WHATS), help="What to ask for, instead of the method's own."),
        click.option("--when", type=click.Choice(tuple(WHENS)), help="When to retrieve, instead of the method's own."),
        click.option("--variant", type=click.Choice(VARIANTS), default="reference", show_default=True),
    ):
        command = option(command)
    return command


@cli.command()
@click.argument("question")
@model_options
@click.option("--corpus", help="A .tsv[.gz], .jsonl[.gz] or folder of .txt; default the embedded passages.")
@click.option("--method", "name", type=click.Choice(tuple(METHODS)), default="dragin", show_default=True)
@method_options
@click.option("--exemplars", help="A YAML file of worked examples (question, rationale, answer).")
@click.option("--gold", multiple=True, help="A right answer, to score against; may be repeated.")
@click.option("--sample", is_flag=True, help="Sample by the model's generation config instead of taking the likeliest.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sampling.")
@click.option("--save", help="Write the trace to this file.")
@click.option("--html", help="Write the trace as a page to this file.")
def ask(
    question: str, corpus: str | None, name: str, exemplars: str | None, gold: tuple[str, ...], **options: Any
) -> None:
    """Answer QUESTION and show where the method retrieved, what it asked, and what it found."""
    chosen = build_method(name, options)
    for option in ("save", "html"):
        check_writable(options[option])
    if not question.strip():
        raise click.UsageError("the question is empty; write one between quotes")
    from dragin_lab.exemplars import load_exemplars
    from dragin_lab.run import default_template, stream

    examples = None if exemplars is None else load_exemplars(exemplars)
    retriever = load_retriever(corpus) if chosen.when != "never" else None
    lm = load_model(options)
    template = default_template(lm) if examples is None else PromptTemplate(examples)
    events = stream(chosen, lm, retriever, question, prompt=template, gold=gold, seed=options["seed"])
    try:
        follow(events)
    except DraginLabError as error:
        raise RunFailedError(str(error)) from error
    finally:
        events.close()
        print_trace(events.trace)
        write_outputs(events.trace, options["save"], options["html"])


@cli.command()
@click.argument("trace")
@click.option("--html", help="Write the trace as a page to this file instead of printing it.")
def show(trace: str, html: str | None) -> None:
    """Print a stored TRACE, or write it as a page that opens offline."""
    from dragin_lab.trace import Trace

    loaded = Trace.load(trace)
    if html is None:
        print_trace(loaded)
    else:
        write_outputs(loaded, None, html)


@cli.command()
@model_options
def doctor(**options: Any) -> None:
    """Check the installation and that a model's attention can be captured."""
    from dragin_lab.doctor import report

    healthy = True
    for line, good in report(lambda: load_model(options, check=False)):
        click.echo(f"{'ok   ' if good else 'FAIL '} {line}")
        healthy &= good
    if not healthy:
        raise RunFailedError("something above needs mending")


@cli.command()
@click.option("--limit", type=int, default=40, show_default=True, help="How many questions.")
@click.option("--output", default="runs/demo", show_default=True, help="Folder for the table and the traces.")
@method_options
def demo(limit: int, output: str, **options: Any) -> None:
    """Answer questions on the embedded passages with every method of the paper, and compare."""
    from dragin_lab.demo import run_demo

    if limit < 1:
        raise click.UsageError(f"--limit {limit}: give 1 or more")
    folder = make_folder(output)
    methods = [build_method(name, options) for name in METHODS]
    run_demo(methods, limit, folder, click.echo)


# -- parts ------------------------------------------------------------------------------------------------------------


def build_method(name: str, options: dict[str, Any]) -> Method:
    """The method that the options describe; θ is left to the methods that have one."""
    from dragin_lab.methods import method

    names = ("variant", "when", "what", "threshold", "top_n", "top_k", "max_new_tokens")
    return method(name, **{key: options[key] for key in names})


def load_model(options: dict[str, Any], check: bool = True) -> Any:
    from dragin_lab.lm.load import LanguageModel

    layer, heads = options["layer"], options["heads"]
    try:
        chosen = layer if layer == "last" else int(layer)
        picked = None if heads is None else [int(h) for h in heads.split(",")]
    except ValueError:
        raise click.UsageError(f"--layer {layer!r} --heads {heads!r}: give whole numbers, or last") from None
    wanted = {key: options[key] for key in ("device", "dtype")}
    sample = options.get("sample", False)
    return LanguageModel.load(options["model"], layer=chosen, heads=picked, sample=sample, check=check, **wanted)


def load_retriever(corpus: str | None) -> Any:
    from dragin_lab.corpus import Corpus
    from dragin_lab.retrieval.bm25 import BM25

    return BM25(Corpus.load(corpus))


def follow(events: Stream) -> None:
    """Run an episode to its end; on a terminal, pieces appear as they are made."""
    from dragin_lab.run import PieceMade, Retrieved

    live = sys.stderr.isatty()
    for event in events:
        if live and isinstance(event, PieceMade):
            click.secho(event.text, nl=False, err=True, dim=True)
        elif live and isinstance(event, Retrieved):
            click.secho(f"\n  searching: {event.query}", err=True, dim=True)
    if live:
        click.echo(err=True)


def print_trace(trace: Trace) -> None:
    from dragin_lab.views.trace import trace_text

    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    click.echo(trace_text(trace, width=width, color=sys.stdout.isatty()))


def check_writable(path: str | None) -> None:
    """Refuse an output that cannot be written before any work is done."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise click.UsageError(f"{path} is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise click.UsageError(f"the folder {target.parent} does not exist; make it first")


def make_folder(path: str) -> Path:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--output {path}: {error.strerror}; give a folder that can be written") from None
    return Path(path)


def write_outputs(trace: Trace, save: str | None, html: str | None) -> None:
    try:
        if save is not None:
            click.echo(f"trace written to {trace.save(save)}", err=True)
        if html is not None:
            from dragin_lab.views.trace import trace_html

            Path(html).write_text(trace_html(trace, full_page=True), encoding="utf-8")
            click.echo(f"page written to {html}", err=True)
    except (OSError, TraceFileError) as error:
        raise RunFailedError(str(error)) from error


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    sys.exit(status(args if args is not None else sys.argv[1:]))


def status(args: list[str]) -> int:
    """Run one command; errors become one or two lines, with ``--debug`` a traceback too."""
    warnings.showwarning = lambda message, *_, **__: click.echo(f"warning: {message}", err=True)
    try:
        cli.main(args=args, prog_name="dragin-lab", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("\ninterrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return USAGE
    except DraginLabError as error:
        return _complain(error, args, USAGE)
    except RunFailedError as error:
        return _complain(error, args, FAILED)
    except BrokenPipeError:
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last line of defence names the error instead of a traceback
        return _complain(
            error, args, FAILED, f"{type(error).__name__}: {error}\n(run again with --debug for the details)"
        )
    return DONE


def _complain(error: Exception, args: list[str], code: int, text: str | None = None) -> int:
    if "--debug" in args:
        traceback.print_exception(error)
    click.echo(f"error: {text or error}", err=True)
    return code
