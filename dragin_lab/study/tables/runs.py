"""Which of the runs at hand a cell of a table is filled from, and what is said where none is."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.core.given import shown
from dragin_lab.core.intervals import Interval, bootstrap
from dragin_lab.core.method import METHODS, method
from dragin_lab.data import paper
from dragin_lab.data.datasets import BENCHMARKS, FILES
from dragin_lab.data.presets import find_preset, plain_name
from dragin_lab.errors import SettingError
from dragin_lab.study.comparisons import PairedTest, paired
from dragin_lab.study.tables.cells import measured
from dragin_lab.study.tables.layouts import ALONE, BM25, DENSE, NAMES, OWN_WHEN, Want

if TYPE_CHECKING:
    from dragin_lab.run.rundir import RunRecord

#: The encoder that the README of the paper's code gives.
SGPT = "Muennighoff/SGPT-1.3B-weightedmean-msmarco-specb-bitfit"
_SPLITS = ("-train", "-dev", "-test")
_Parts = tuple[str, str, float | None, str | None]  # when, what, threshold, retriever


@dataclass
class Source:
    """A run as tables see it."""

    record: RunRecord
    named: str | None = None  # the model of the paper that the user compares it with
    _means: dict[str, Interval | None] = field(default_factory=dict)
    _tests: dict[tuple[Path, str], PairedTest | None] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.record.folder

    @property
    def settings(self) -> dict[str, Any]:
        """The method's."""
        return self.record.config["method"]

    @property
    def dataset(self) -> str:
        return str(self.record.config["dataset"]["name"])

    @property
    def asked(self) -> int:
        """How many questions the run is about."""
        return int(self.record.config["dataset"]["questions"])

    @property
    def almanac(self) -> bool:
        return self.dataset.startswith("almanac/")

    @cached_property
    def benchmark(self) -> str | None:
        """The benchmark whose columns it fills: by the data set's name, or that of the file as released."""
        name = self.dataset.removeprefix("almanac/")
        for split in _SPLITS:
            name = name.removesuffix(split)
        stems = {Path(file).stem: kind for kind, file in FILES.items() if Path(file).stem != "dev"}
        stems |= {stem.removesuffix(split): kind for stem, kind in stems.items() for split in _SPLITS}
        return name if name in BENCHMARKS else stems.get(name)

    @property
    def model(self) -> str:
        return str(self.record.config["model"]["model"])

    @property
    def paper_model(self) -> str | None:
        """The model of the paper that it is, or is compared with."""
        name = plain_name(self.model)
        return self.named or (name if name in paper.MODELS.values() else None)

    @property
    def retriever(self) -> str | None:
        """``BM25``, ``DENSE``; None where the method searches nothing."""
        used = self.record.config.get("retriever")
        return None if used is None else BM25 if BM25 in str(used.get("kind")).lower() else DENSE

    @property
    def searched_with(self) -> str:
        """The retriever's name."""
        used = self.record.config.get("retriever") or {}
        kind = str(used.get("kind") or "none")
        return f"{kind}:{used['model']}" if used.get("model") else kind

    def values(self, measure: str) -> dict[str, float]:
        """Question id -> value, of the episodes that did not fail and have one."""
        return measured({line["qid"]: line for line in self.record.predictions}, measure)

    def mean(self, measure: str) -> Interval | None:
        """The mean a question, None where no question has a value."""
        if measure not in self._means:
            values = list(self.values(measure).values())
            self._means[measure] = bootstrap(values) if values else None
        return self._means[measure]

    def against(self, other: Source, measure: str) -> PairedTest | None:
        """The paired test on the questions that both answered; None where they were not asked the same."""
        at = (other.folder, measure)
        if at not in self._tests:
            ours, theirs = self.values(measure), other.values(measure)
            both = [qid for qid in ours if qid in theirs] if self.dataset == other.dataset else []
            self._tests[at] = paired([ours[q] for q in both], [theirs[q] for q in both]) if both else None
        return self._tests[at]

    def fits(self, want: Want) -> bool:
        """Whether the cell can be filled from this run, as far as everything but its model goes."""
        made = self.settings
        return (
            self.benchmark == want.benchmark
            and (made["when"], made["what"]) == (want.when, want.what)
            and want.threshold in (None, made["threshold"])
            and want.retriever in (None, self.retriever)
        )


class Sources:
    """The runs that a table is made from."""

    def __init__(
        self, records: Iterable[RunRecord], *, as_model: str | None = None, variant: str | None = None
    ) -> None:
        """``as_model``: the paper's model that the runs are compared with; ``variant``: take the runs of one only.

        Raises ``SettingError`` for a model that the paper does not have, and for runs of more models than can stand
        beside one of the paper's.
        """
        known = sorted(set(paper.MODELS.values()))
        if as_model is not None and not (isinstance(as_model, str) and as_model in known):
            raise SettingError(f"the paper has no model {shown(as_model)}; one of {', '.join(known)}")
        found = [Source(record, as_model) for record in records]
        self.all = [s for s in found if variant in (None, s.settings["variant"])]
        if found and not self.all:
            raise SettingError(f"none of the {len(found)} runs is of the {variant} variant; leave variant out")
        self.unused = [s for s in self.all if s.benchmark is None]
        self._by_model: dict[str | None, list[Source]] = {}
        for one in self.all:
            if one.benchmark is not None:
                self._by_model.setdefault(one.paper_model, []).append(one)
        for beside, sources in self._by_model.items():
            names = sorted({s.model for s in sources})
            if len(names) > 1:
                place = f"beside {beside}" if beside else "beside the paper's"
                raise SettingError(f"runs of {len(names)} models ({', '.join(names)}); give those of one {place}")
        self.left_out: dict[Path, Source] = {}

    def of(self, model: str | None) -> list[Source]:
        """The runs that stand beside a model of the paper: its own, else those of a model that the paper has not.

        None is for tables about one model (``ALONE``): there the runs of any other do too, when there is just one.
        """
        own = self._by_model.get(model or ALONE) or self._by_model.get(None)
        if own is None and model is None and len(self._by_model) == 1:
            own = next(iter(self._by_model.values()))
        return own or []

    def find(self, want: Want) -> Source | None:
        """The run for a cell. Where several fit: real questions before Almanac's, BM25, the reference variant, then
        the threshold of Table 9 or the method's default.

        Raises ``SettingError`` where several are left.
        """
        fitting = [source for source in self.of(want.model) if source.fits(want)]
        best = fitting
        for prefer in (_real, _lexical, _reference, _published, _default):
            preferred = [source for source in best if prefer(source)]
            best = preferred or best
            if len(best) == 1:
                break
        if len(best) > 1:
            folders = ", ".join(str(source.folder) for source in best)
            raise SettingError(
                f"{len(best)} runs fit {want.when} × {want.what} on {NAMES[want.benchmark]}: {folders}; "
                "give the folders of those you mean"
            )
        self.left_out |= {source.folder: source for source in fitting if source not in best}
        return best[0] if best else None


def _real(source: Source) -> bool:
    return not source.almanac


def _lexical(source: Source) -> bool:
    return source.retriever in (None, BM25)


def _reference(source: Source) -> bool:
    return source.settings["variant"] == "reference"


def _published(source: Source) -> bool:
    """Whether its threshold is that of Table 9 for the model and benchmark."""
    if source.paper_model is None or source.benchmark is None:
        return False
    made = source.settings
    return (
        made["when"] == OWN_WHEN
        and made["threshold"]
        == (find_preset(source.paper_model, source.benchmark, source="paper").settings["threshold"])
    )


def _default(source: Source) -> bool:
    """Whether the settings that sweeps go over are the method's own."""
    made = source.settings
    own = method(made["name"], variant=made["variant"], when=made["when"], what=made["what"])
    return all(made.get(name) == own.settings.get(name) for name in ("threshold", "top_n", "n"))


# -- what is missing --------------------------------------------------------------------------------------------------


def missing_lines(wants: Sequence[Want], sources: Sources) -> list[str]:
    """What is missing, and the commands that make it, a line each."""
    by_pair: dict[_Parts, dict[str, None]] = {}
    for want in wants:
        by_pair.setdefault((want.when, want.what, want.threshold, want.retriever), {})[want.benchmark] = None
    by_benchmarks: dict[tuple[str, ...], list[_Parts]] = {}
    for pair, its in by_pair.items():
        by_benchmarks.setdefault(tuple(its), []).append(pair)
    lines = []
    for benchmarks, pairs in by_benchmarks.items():
        names = [_name(*pair) for pair in pairs]
        lines.append(f"no run of {', '.join(names)} on {', '.join(NAMES[name] for name in benchmarks)}; make it with:")
        for dense in (False, True):
            these = [pair for pair in pairs if (pair[3] == DENSE) == dense]
            more = ["--retriever", _encoder(sources)] if dense else []
            lines += [f"  {command}" for command in _commands(benchmarks, these, sources, more)]
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


def _commands(
    benchmarks: Sequence[str], pairs: Sequence[_Parts], sources: Sources, more: Sequence[str] = ()
) -> list[str]:
    """``dragin-lab run`` with the methods, the settings that the runs at hand share, and ``more`` options."""
    named = [name for name, parts in METHODS.items() for pair in pairs if pair[:2] == parts]
    thetas = [f"{pair[2]:g}" for pair in pairs if pair[2] is not None]
    made = []
    if named:
        made.append(
            ["--method", ",".join(dict.fromkeys(named))] + (["--threshold", ",".join(thetas)] if thetas else [])
        )
    other = [pair for pair in pairs if pair[:2] not in METHODS.values()]
    whens = list(dict.fromkeys(when for when, *_ in other))
    whats = list(dict.fromkeys(what for _, what, *_ in other))
    if other:  # one part of DRAGIN exchanged: in Table 4 when, in Table 6 what
        own = METHODS["dragin"][0]
        made.append(
            ["--method", "dragin", *(["--when", ",".join(whens)] if whens != [own] else []), "--what", ",".join(whats)]
        )
    shared = _shared(benchmarks, sources)
    return [shlex.join(["dragin-lab", "run", *parts, *shared, *more]) for parts in made]


def _shared(benchmarks: Sequence[str], sources: Sources) -> list[str]:
    used = [source for source in sources.all if source.benchmark is not None]
    almanac = all(source.almanac for source in used)
    parts = ["--dataset", ",".join(f"almanac/{name}" if almanac else name for name in benchmarks)]
    settings = [source.settings for source in used]
    for option, usual, values in (
        ("--model", "almanac", {source.model for source in used}),
        ("--variant", "reference", {made["variant"] for made in settings}),
        ("--max-new-tokens", 64, {made["max_new_tokens"] for made in settings}),
        ("--limit", None, {source.record.config.get("limit") for source in used}),
    ):
        if len(values) == 1 and (value := values.pop()) != usual:
            parts += [option, str(value)]
    folder, levels = used[0].folder.parent, Path(used[0].dataset).parts
    if folder.parts[-len(levels) :] == levels:  # as ``run`` lays folders out
        parts += ["--output", str(folder.parents[len(levels) - 1])]
    return parts
