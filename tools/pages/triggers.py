"""Make docs/triggers.md: every trigger in one loop, at the same cost, and a fitted one that is meant to be better.

    python -m tools.pages.triggers --tables notebooks  480 test questions; resumed where it was stopped
    python -m tools.pages.triggers --part iirc         one benchmark, beside another process with another; then all
    python -m tools.pages.triggers --limit 3           a quick look: so many questions of each benchmark

What is computed goes into runs/triggers/, in a folder for these weights and settings; what is there is not computed
again. Thresholds are found, and the trigger is fitted, on the development split; test is answered once. SmolLM2's
answers are those of tools/pages/real_model.py, which asks for them where they are not there yet (``make real``).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copyfile
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the embedded model's threads would only wait for one another

from filelock import FileLock

import dragin_lab as dl
from dragin_lab.catalog.budget import Calibration
from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.catalog.need import REGRESSIONS
from dragin_lab.core.method import Method
from dragin_lab.data import datasets
from dragin_lab.errors import SettingError
from dragin_lab.study import needs
from dragin_lab.study.fitting import LEAST
from dragin_lab.study.headroom import Headroom, bounds
from dragin_lab.trace.trace import Trace
from tools.pages.base import DOCS, ROOT, RUNS, Row, kept_rows, parser, say
from tools.pages.transfer import ALMANAC, ELSEWHERE, REAL, halves, real_answers, real_areas, run_tests, score_answers
from tools.pages.triggers_page import HEADROOM_AT, Audit, Results, make_sections, write_page, write_tables
from tools.pages.triggers_work import FITS, NEW_TOKENS, TOP_K, Run, Work

BYTE_LEVEL = str(ROOT / "tests" / "parity" / "models" / "almanac-prototype")
ASKING_THEMSELVES = ("flare-instruct", "self-ask")
BESIDE_CALLS = ("rind", "entropy", "fitted")  # calibrated to one retrieval, for comparison
BY_PROBABILITY = ("rind", "entropy", "max-probability", "fitted")
FIXED_THETA = 1.0  # what the Dynamic RAG Toolbox has for every model


def compared(work: Work, given: argparse.Namespace) -> Results | None:
    """Everything that the page says of one model; None where only a part was asked for."""
    nothing = float("nan")
    with FileLock(work.folder / "calibrated.lock"):  # another process may answer another part
        transferred = work.transferred()
        fitted, elsewhere = transferred[ALMANAC]["default"], transferred[REAL]["default"]
        methods = work.methods(fitted, work.probe(), elsewhere)
        runs, unreached = work.calibrated(methods)
        even = {name: work.probabilities(methods[name]) for name in BY_PROBABILITY}
    oracle, gold = bounds(work.labels("test"))
    own = {run.name: run for run in runs if run.budget == HEADROOM_AT}
    extra = [Run("wo-rag", nothing, dl.method("wo-rag", max_new_tokens=NEW_TOKENS))]
    extra += [Run("oracle", nothing, work.method(oracle)), Run("oracle gold", nothing, work.method(oracle, gold))]
    extra += [
        Run(f"{name} gold", nothing, work.method(methods[name].trigger, gold, threshold=own[name].method.threshold))
        for name in ("rind", "fitted")
        if name in own
    ]
    extra += [Run(name, nothing, dl.method(name, top_k=TOP_K)) for name in ASKING_THEMSELVES]
    extra += [Run(f"{name} p", nothing, even[name][REGRESSIONS[0]][0]) for name in BY_PROBABILITY]
    runs += extra
    if given.part:
        work.answer(runs, given.part)
        return None
    lines, seconds = work.answer(runs)
    at_budget = {run.name: (run, part) for run, part in zip(runs, lines, strict=True) if run.budget == HEADROOM_AT}
    single = {run.name: (run, part) for run, part in zip(runs, lines, strict=True) if run.budget != run.budget}
    headrooms = {}
    for name in ("rind", "fitted"):
        if name in at_budget:
            four = [at_budget[name], single["oracle"], single[f"{name} gold"], single["oracle gold"]]
            headrooms[name] = Headroom(tuple(r.method for r, _ in four), tuple(part for _, part in four))
    items, answers = work.items(), real_answers()
    asked = score_answers(halves(answers)[1], transferred[ALMANAC].values())
    own_choice = {name: single[name] for name in ASKING_THEMSELVES} | {name: at_budget[name] for name in BESIDE_CALLS}
    return Results(
        model=work.provenance,
        pipeline=work.pipeline.name,
        questions=len(lines[0]),
        dev_questions=given.dev_limit * len(datasets.BENCHMARKS),
        methods={name: methods[name].trigger for name in methods},
        frontier=work.frontier(runs, lines, unreached),
        without=single["wo-rag"][1],
        oracle=single["oracle"][1],
        timings={name: work.timing(run) for name, (run, _) in at_budget.items()},
        at_budget={name: part for name, (_, part) in at_budget.items()},
        headrooms=headrooms,
        facts=items,
        record=json.loads((work.folder / FITS / "fitted.json").read_text()),
        seconds=dict(seconds),
        real=real_areas(answers, fitted, elsewhere),
        tests=(
            *run_tests(ALMANAC, REAL, asked),
            *run_tests(REAL, ALMANAC, needs.own_view(items)),
        ),
        real_test=asked,
        support=work.support(),
        reliability={name: {r: result for r, (_, result) in by.items()} for name, by in even.items()},
        by_probability={n: (even[n][REGRESSIONS[0]][0].threshold, single[f"{n} p"][1]) for n in BY_PROBABILITY},
        calls={name: (work.timing(run), part) for name, (run, part) in own_choice.items()},
    )


# -- the audit --------------------------------------------------------------------------------------------------------


def audit(given: argparse.Namespace) -> tuple[list[Audit], dict[str, str]]:
    """RIND as released with each model's own space marker, and with Llama-2's, at one θ; and the θ of a budget."""
    found, thetas = [], {}
    for folder in dict.fromkeys([given.model, *given.byte_level]):
        work = Work(given, folder, "reference")
        tokenizer, rind = work.lm.tokenizer, work.method("rind", threshold=FIXED_THETA)
        own = tokenizer.marker

        def calibrated(form: str, work: Work = work, rind: Method = rind) -> Row:
            scores = Calibration.of(work.drafts(rind))
            try:
                return {"theta": f"{exchange_settings(rind, threshold=form, calibration=scores).threshold:.3g}"}
            except SettingError as error:
                return {"theta": f"none ({error})"}

        (row,) = kept_rows(work.folder / "audit-theta.jsonl", [f"budget:{HEADROOM_AT:g}"], calibrated)
        thetas[work.lm.name] = row["theta"]

        def measured(marker: str, work: Work = work, own: str = own, rind: Method = rind) -> Row:
            say(f"audit: {work.lm.name}, marker {marker}")
            work.lm.tokenizer.marker = marker
            return asdict(_audited(work.lm.name, own, marker, list(work.drafts(rind, retrieving=True))))

        rows = kept_rows(work.folder / "audit.jsonl", list(dict.fromkeys([own, "▁"])), measured)
        found += [Audit(**row) for row in rows]
        tokenizer.marker = own
    return found, thetas


def _audited(model: str, own: str, marker: str, traces: Sequence[Trace]) -> Audit:
    drafts = [s for t in traces for s in t.steps if s.draft is not None and s.decision is not None and len(s.words)]
    return Audit(
        model=model,
        marker=marker,
        right=marker == own,
        questions=len(traces),
        words=fmean(len(step.words) for step in drafts),
        written=fmean(len(step.draft.text.split()) for step in drafts if step.draft is not None),
        fired=fmean(bool(step.decision.retrieve) for step in drafts if step.decision is not None),
        retrievals=fmean(trace.retrievals_count for trace in traces),
        em=fmean(trace.scores["em"] for trace in traces),
    )


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("--model", help="a folder or an id; default: the embedded model")
    command.add_argument("--byte-level", nargs="*", default=[BYTE_LEVEL], help="the audit's further models")
    command.add_argument("--limit", type=int, default=120, help="test questions of each benchmark")
    command.add_argument("--needs-limit", type=int, default=120, help="of these, questions for the areas")
    command.add_argument(
        "--dev-limit", type=int, help="development questions of each (default: 80, with --limit fewer)"
    )
    command.add_argument("--part", nargs="+", choices=datasets.BENCHMARKS, help="answer these alone, and write no page")
    command.add_argument("--batch-size", type=int, default=16, help="questions side by side")
    command.add_argument("--output", type=Path, default=RUNS / "triggers")
    command.add_argument("--tables", type=Path, help="a folder for what notebook 10 reads, such as notebooks")
    command.add_argument("--page", type=Path, default=DOCS / "triggers.md")
    given = command.parse_args(arguments)
    # A trigger is fitted on twenty traces or more.
    given.dev_limit = given.dev_limit or min(80, max(LEAST // 2, given.limit))
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    work = Work(given, given.model)
    say(f"{work.lm!r}; results in {work.folder}")
    found = compared(work, given)
    if found is None:
        return
    audits, thetas = audit(given)
    sections = make_sections(found, given.page.parent / "pictures")
    if given.tables is not None:
        write_tables(given.tables / "almanac_triggers.json", found, sections)
        copyfile(work.folder / FITS / "fitted.json", given.tables / "almanac_fitted.json")
        copyfile(work.folder / FITS / f"{ELSEWHERE}.json", given.tables / "smollm2_fitted.json")
    write_page(given.page, replace(found, audits=audits, thetas=thetas), sections)
    say(f"wrote {given.page}")


if __name__ == "__main__":
    main()
