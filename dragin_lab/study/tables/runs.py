"""Which of the runs at hand a cell of a table is filled from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dragin_lab.checks import shown
from dragin_lab.core.method import method
from dragin_lab.data import paper
from dragin_lab.data.datasets import BENCHMARKS, FILES
from dragin_lab.data.presets import find_preset, plain_name
from dragin_lab.errors import SettingError
from dragin_lab.study.conditions import check_same_questions
from dragin_lab.study.tables.cells import Cell, mean_cell, measured
from dragin_lab.study.tables.layouts import ALONE, BM25, DENSE, NAMES, OWN_WHEN, Want

if TYPE_CHECKING:
    from dragin_lab.run.rundir import RunRecord

_SPLITS = ("-train", "-dev", "-test")


class Source:
    """A run as tables see it.

    ``asked`` counts its questions, ``benchmark`` is the one whose columns it fills (None: of none), ``paper_model`` the
    model of the paper that it is of or ``named`` to be compared with, ``retriever`` is ``BM25`` or ``DENSE`` (None
    where the method searches nothing), ``searched_with`` the retriever's name.
    """

    def __init__(self, record: RunRecord, named: str | None = None) -> None:
        config, used = record.config, record.config.get("retriever") or {}
        self.record, self.folder, self.settings = record, record.folder, config["method"]
        self.dataset, self.asked = str(config["dataset"]["name"]), int(config["dataset"]["questions"])
        self.almanac = self.dataset.startswith("almanac/")
        self.benchmark = _benchmark(self.dataset)
        self.model = str(config["model"]["model"])
        known = plain_name(self.model) if plain_name(self.model) in paper.MODELS.values() else None
        self.paper_model = named or known
        kind = str(used.get("kind") or "none")
        self.searched_with = f"{kind}:{used['model']}" if used.get("model") else kind
        searches = config.get("retriever") is not None
        self.retriever = (BM25 if BM25 in kind.lower() else DENSE) if searches else None
        self._cells: dict[tuple[str, Path | None], Cell] = {}

    def values(self, measure: str) -> dict[str, float]:
        """Question id -> value, of the episodes that did not fail and have one."""
        return measured({line["qid"]: line for line in self.record.predictions}, measure)

    def cell(self, measure: str, base: Source | None) -> Cell:
        """The mean a question, tested against ``base`` where both were asked the same questions."""
        at = (measure, None if base is None else base.folder)
        if at not in self._cells:
            theirs = base.values(measure) if base is not None and base.dataset == self.dataset else None
            places = 3 if measure in ("em", "f1", "precision", "recall") else 2
            self._cells[at] = mean_cell(measure, self.values(measure), theirs, places)
        return self._cells[at]

    def fits(self, want: Want) -> bool:
        """Whether the cell can be filled from this run, as far as everything but its model goes."""
        made = self.settings
        return (
            self.benchmark == want.benchmark
            and (made["when"], made["what"]) == (want.when, want.what)
            and want.threshold in (None, made["threshold"])
            and want.retriever in (None, self.retriever)
        )


def _benchmark(dataset: str) -> str | None:
    """The benchmark that a data set is, by its name or that of the file as released."""
    name = dataset.removeprefix("almanac/")
    for split in _SPLITS:
        name = name.removesuffix(split)
    stems = {Path(file).stem: kind for kind, file in FILES.items() if Path(file).stem != "dev"}
    stems |= {stem.removesuffix(split): kind for stem, kind in stems.items() for split in _SPLITS}
    return name if name in BENCHMARKS else stems.get(name)


class Sources:
    """The runs that a table is made from."""

    def __init__(
        self, records: Iterable[RunRecord], *, as_model: str | None = None, variant: str | None = None
    ) -> None:
        """``as_model``: the paper's model that the runs are compared with; ``variant``: take the runs of one only.

        Raises ``SettingError`` for a model that the paper does not have, for runs of more models than can stand beside
        one of the paper's, and for runs of one data set that are not of the same questions.
        """
        known = sorted(set(paper.MODELS.values()))
        if as_model is not None and not (isinstance(as_model, str) and as_model in known):
            raise SettingError(f"the paper has no model {shown(as_model)}; one of {', '.join(known)}")
        found = [Source(record, as_model) for record in records]
        self.all = [s for s in found if variant in (None, s.settings["variant"])]
        if found and not self.all:
            raise SettingError(f"none of the {len(found)} runs is of the {variant} variant; leave variant out")
        for dataset in {s.dataset for s in self.all}:
            of = [s for s in self.all if s.dataset == dataset]
            check_same_questions({str(s.folder): {line["qid"]: line for line in s.record.predictions} for s in of})
        self.unused = [s for s in self.all if s.benchmark is None]
        self.left_out: dict[Path, Source] = {}
        self._by_model: dict[str | None, list[Source]] = {}
        for one in self.all:
            if one.benchmark is not None:
                self._by_model.setdefault(one.paper_model, []).append(one)
        for beside, sources in self._by_model.items():
            names = sorted({s.model for s in sources})
            if len(names) > 1:
                place = f"beside {beside}" if beside else "beside the paper's"
                raise SettingError(f"runs of {len(names)} models ({', '.join(names)}); give those of one {place}")

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
        best = fitting = [source for source in self.of(want.model) if source.fits(want)]
        for preferred in _PREFERENCES:
            if len(best) > 1:  # the last one makes a method, for which spaCy has to be there
                best = [source for source in best if preferred(source)] or best
        if len(best) > 1:
            folders = ", ".join(str(source.folder) for source in best)
            raise SettingError(
                f"{len(best)} runs fit {want.when} × {want.what} on {NAMES[want.benchmark]}: {folders}; "
                "give the folders of those you mean"
            )
        self.left_out |= {source.folder: source for source in fitting if source not in best}
        return best[0] if best else None


def _published(source: Source) -> bool:
    """Whether its threshold is that of Table 9 for the model and benchmark."""
    if source.paper_model is None or source.benchmark is None or source.settings["when"] != OWN_WHEN:
        return False
    preset = find_preset(source.paper_model, source.benchmark, source="paper")
    return bool(source.settings["threshold"] == preset.settings["threshold"])


def _default(source: Source) -> bool:
    """Whether the settings that sweeps go over are the method's own."""
    made = source.settings
    own = method(made["name"], variant=made["variant"], when=made["when"], what=made["what"])
    return all(made.get(name) == own.settings.get(name) for name in ("threshold", "top_n", "n"))


_PREFERENCES: tuple[Callable[[Source], bool], ...] = (
    lambda source: not source.almanac,
    lambda source: source.retriever in (None, BM25),
    lambda source: source.settings["variant"] == "reference",
    _published,
    _default,
)
