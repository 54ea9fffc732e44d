"""``dragin-lab budget``, ``frontier``, ``headroom``, ``needs``, ``timing``, ``benefit``: triggers judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import rich_click as click

from dragin_lab import almanac
from dragin_lab.almanac.facts import Labelled
from dragin_lab.cli.options import (
    NUMBER,
    Numbers,
    check_tap,
    corpus_option,
    debug_option,
    load_model,
    load_retriever,
    model_options,
    retriever_option,
    together,
    with_option,
)
from dragin_lab.cli.outputs import echo, frame_text
from dragin_lab.core.method import METHODS, VARIANTS, Method, method
from dragin_lab.data import datasets
from dragin_lab.errors import SettingError
from dragin_lab.files import write_whole
from dragin_lab.run.benchmark import Benchmark, open_benchmark
from dragin_lab.run.lab import Lab
from dragin_lab.text import csv_text

shared_options = together(
    with_option,
    click.option("--variant", type=click.Choice(VARIANTS), default="reference", show_default=True, panel="Method"),
    click.option("--dataset", default="almanac/2wikimultihopqa", show_default=True, panel="Questions"),
    click.option("--split", panel="Questions", help="Almanac's train, dev or test; default test."),
    click.option("--limit", type=int, panel="Questions", help="Only the first N questions."),
    corpus_option,
    retriever_option,
    model_options,
    debug_option,
)


def named(text: str, variant: str) -> Method:
    """A method by its name, or DRAGIN with a *when* in its written form."""
    return method(text, variant=variant) if text in METHODS else method("dragin", when=text, variant=variant)


def _opened(options: dict[str, Any]) -> tuple[Lab, Callable[[str | None], Benchmark]]:
    """The lab of the options, and what opens a split of their data set."""
    check_tap(options)
    passages = (options["corpus"], options["retriever"], options["corpus_fields"])
    lab = Lab(load_model(options), retriever=load_retriever(*passages), cache=True)
    return lab, lambda split: open_benchmark(options["dataset"], split=split, limit=options["limit"])


@click.command(short_help="Find the threshold that a budget asks for.")
@click.argument("name", metavar="METHOD")
@click.argument("threshold", metavar="BUDGET")
@shared_options
def budget(name: str, threshold: str, **options: Any) -> None:
    """Find METHOD's threshold for BUDGET: budget:1.5 retrievals per question, or share:0.3 of the drafts.

    METHOD is a method's name, or a trigger in its written form. What the threshold was found on is printed with it.
    """
    from dragin_lab.study.budgets import calibrate

    lab, questions = _opened(options)
    found = calibrate(lab, questions(options["split"]), named(name, options["variant"]), threshold)
    told = {"method": str(found), "threshold": found.threshold} | found.settings["calibrated"]
    echo(json.dumps(told, indent=1))


@click.command(short_help="Compare methods at the same budgets.")
@click.argument("names", nargs=-1, required=True, metavar="METHOD...")
@click.option(
    "--budgets",
    type=Numbers(NUMBER),
    default="0.5,1,1.5,2",
    show_default=True,
    panel="Method",
    help="Retrievals per question, between commas.",
)
@click.option(
    "--calibrate",
    "calibration",
    default="dev",
    show_default=True,
    panel="Questions",
    help="The split on which thresholds are found.",
)
@click.option("--output", metavar="FILE.csv", panel="Run", help="Write the table to a file too.")
@shared_options
def frontier(
    names: tuple[str, ...], budgets: tuple[float, ...], calibration: str, output: str | None, **options: Any
) -> None:  # fmt: skip
    """Answer the same questions with every METHOD at every budget: exact match, F1, retrievals, pieces, intervals."""
    from dragin_lab.study.frontier import frontier as compared

    lab, questions = _opened(options)
    methods = {name: named(name, options["variant"]) for name in names}
    found = compared(lab, questions(options["split"]), methods, questions(calibration), budgets=budgets)
    echo(frame_text(found.table))
    for line in found.unreached:
        echo(line, err=True)
    if output is not None:
        write_whole(output, csv_text(found.table).encode())


def _labelled(options: dict[str, Any]) -> list[Labelled]:
    """The labels of the questions that are asked. Raises ``SettingError`` for questions that have none."""
    kind = options["dataset"].removeprefix("almanac/")
    if kind == options["dataset"] or kind not in datasets.BENCHMARKS:
        raise SettingError(f"--dataset {options['dataset']}: only Almanac's questions have labels; give almanac/NAME")
    return almanac.labels(kind, options["split"] or "test", options["limit"])


@click.command(short_help="Tell how well triggers find what has to be looked up.")
@shared_options
def needs(**options: Any) -> None:
    """ROC areas of every trigger over the facts and sentences of Almanac's gold reasoning, with 95 % intervals."""
    from dragin_lab.study.needs import detection

    labels = _labelled(options)
    lab, questions = _opened(options)
    found = detection(lab.replace(exemplars=questions(options["split"]).template), labels)
    echo(frame_text(found))


@click.command(short_help="Tell which retrievals came in time.")
@click.argument("name", metavar="METHOD", default="dragin")
@shared_options
def timing(name: str, **options: Any) -> None:
    """Answer Almanac's questions with METHOD, and count retrievals in time, delayed, redundant and missing."""
    from dragin_lab.study.timing import timing as counted

    labels = _labelled(options)
    lab, questions = _opened(options)
    asked = questions(options["split"])
    traces = lab.replace(exemplars=asked.template).ask_many(asked.questions, named(name, options["variant"]))
    echo(json.dumps(asdict(counted(traces, labels))))


@click.command(short_help="Tell what each retrieval made right or wrong.")
@click.argument("name", metavar="METHOD", default="dragin")
@shared_options
def benefit(name: str, **options: Any) -> None:
    """Answer questions with METHOD, and each time also without the retrieval: right to wrong, wrong to right."""
    from dragin_lab.study.benefit import benefit as counted

    lab, questions = _opened(options)
    found = counted(lab, questions(options["split"]), named(name, options["variant"]))
    told = {"asked": found.asked} | {key: value for key, value in asdict(found).items() if key != "gain"}
    echo(json.dumps(told | {"gain": str(found.gain or "none")}))


@click.command(short_help="Divide what a method lacks into when, what and reading.")
@click.argument("name", metavar="METHOD", default="dragin")
@shared_options
def headroom(name: str, **options: Any) -> None:
    """Answer Almanac's questions with METHOD and with an oracle's when, an oracle's what, and both."""
    from dragin_lab.study.headroom import headroom as divided

    labels = _labelled(options)
    lab, questions = _opened(options)
    made = named(name, options["variant"])
    found = divided(lab, questions(options["split"]), labels, made)
    echo(frame_text(found.table))
    echo("of what is lacking: " + ", ".join(f"{part} {value:+.3f}" for part, value in found.parts.items()))


JUDGING = (budget, frontier, headroom, needs, timing, benefit)
