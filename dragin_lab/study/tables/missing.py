"""What no run was given for, and the commands that make it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from dragin_lab.core.method import METHODS
from dragin_lab.study.tables.layouts import DENSE, NAMES, Want
from dragin_lab.study.tables.runs import Sources

#: The encoder that the README of the paper's code gives.
SGPT = "Muennighoff/SGPT-1.3B-weightedmean-msmarco-specb-bitfit"
_Parts = tuple[str, str, float | None, str | None]  # when, what, threshold, retriever


def missing_lines(wants: Iterable[Want], sources: Sources) -> list[str]:
    """What is missing, and the commands that make it, one per line."""
    by_parts: dict[_Parts, dict[str, None]] = {}
    for want in wants:
        by_parts.setdefault((want.when, want.what, want.threshold, want.retriever), {})[want.benchmark] = None
    by_benchmarks: dict[tuple[str, ...], list[_Parts]] = {}
    for parts, its in by_parts.items():
        by_benchmarks.setdefault(tuple(its), []).append(parts)
    lines = []
    for benchmarks, every in by_benchmarks.items():
        names = ", ".join(_name(*parts) for parts in every)
        lines.append(f"no run of {names} on {', '.join(NAMES[name] for name in benchmarks)}; make it with:")
        dense = [parts for parts in every if parts[3] == DENSE]
        lines += _commands(benchmarks, [parts for parts in every if parts not in dense], sources, [])
        lines += _commands(benchmarks, dense, sources, ["--retriever", _encoder(sources)])
    if lines and not all(source.almanac for source in sources.all):
        lines.append("with --corpus and --exemplars as for the runs given")
    return lines


def _name(when: str, what: str, threshold: float | None, retriever: str | None) -> str:
    name = next((name for name, parts in METHODS.items() if parts == (when, what)), f"{when} × {what}")
    name += f" at θ = {threshold:g}" if threshold is not None else ""
    return name + (f" with a {retriever} retriever" if retriever == DENSE else "")


def _encoder(sources: Sources) -> str:
    """The dense retriever of the runs at hand; else the embedded one on Almanac, and on real questions the paper's."""
    used = {s.searched_with for s in sources.all if s.retriever == DENSE and s.searched_with.startswith(f"{DENSE}:")}
    if len(used) == 1:
        return used.pop()
    return f"{DENSE}:{'almanac' if all(source.almanac for source in sources.all) else SGPT}"


def _commands(benchmarks: Sequence[str], every: Sequence[_Parts], sources: Sources, more: list[str]) -> list[str]:
    """``dragin-lab run`` with the methods, the settings that the runs at hand share, and ``more`` options."""
    pairs = [parts[:2] for parts in every]
    named = [name for name, pair in METHODS.items() if pair in pairs]
    other = [pair for pair in pairs if pair not in METHODS.values()]
    thetas = ",".join(f"{theta:g}" for *_, theta, _ in every if theta is not None)
    made = [["--method", ",".join(named), *(["--threshold", thetas] if thetas else [])]] if named else []
    if other:  # one part of DRAGIN exchanged: in Table 4 when, in Table 6 what
        whens, whats = (",".join(dict.fromkeys(part)) for part in zip(*other, strict=True))
        exchanged = [] if whens == METHODS["dragin"][0] else ["--when", whens]
        made.append(["--method", "dragin", *exchanged, "--what", whats])
    shared = _shared(benchmarks, sources)
    return ["  " + shlex.join(["dragin-lab", "run", *parts, *shared, *more]) for parts in made]


def _shared(benchmarks: Sequence[str], sources: Sources) -> list[str]:
    """The options that all runs at hand share."""
    used = [source for source in sources.all if source.benchmark is not None]
    almanac = all(source.almanac for source in used)
    parts = ["--dataset", ",".join(f"almanac/{name}" if almanac else name for name in benchmarks)]
    for option, usual, values in (
        ("--model", "almanac", {source.model for source in used}),
        ("--variant", "reference", {source.settings["variant"] for source in used}),
        ("--max-new-tokens", 64, {source.settings["max_new_tokens"] for source in used}),
        ("--limit", None, {source.record.config.get("limit") for source in used}),
    ):
        if len(values) == 1 and (value := values.pop()) != usual:
            parts += [option, str(value)]
    folder, levels = used[0].folder.parent, Path(used[0].dataset).parts
    if folder.parts[-len(levels) :] == levels:  # as ``run`` lays folders out
        parts += ["--output", str(folder.parents[len(levels) - 1])]
    return parts
