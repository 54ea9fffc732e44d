"""A run as a source of cells of the paper's tables: what it fills, how well it fits, and what has to be said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragin_lab.catalog.methods import method
from dragin_lab.core.method import METHODS
from dragin_lab.data import paper
from dragin_lab.data.datasets import BENCHMARKS, FILES
from dragin_lab.data.presets import find_preset, plain_name
from dragin_lab.run.rundir import RunRecord
from dragin_lab.study.means import mean_cell
from dragin_lab.study.paper_layouts import BM25, DENSE, Want
from dragin_lab.study.table import Cell

#: The paper's model in Tables 5 and 7, which compare none.
ALONE = "llama2-13b-chat"
OWN_TRIGGER = METHODS["dragin"][0]
_SPLITS = ("-train", "-dev", "-test")


class Source:
    """A run that a table's cells may be filled from.

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

    @property
    def called(self) -> str:
        """The model's name, with that of the paper's model that it stands beside."""
        beside = self.paper_model
        return self.model if beside is None or beside in self.model.lower() else f"{self.model} as {beside}"

    def cell(self, measure: str, base: Source | None) -> Cell:
        """The mean per question, tested against ``base`` where both were asked the same questions."""
        at = (measure, None if base is None else base.folder)
        if at not in self._cells:
            theirs = base.record.predictions if base is not None and base.dataset == self.dataset else None
            places = 3 if measure in ("em", "f1", "precision", "recall") else 2
            self._cells[at] = mean_cell(measure, self.record.predictions, theirs, places)
        return self._cells[at]

    def fits(self, want: Want) -> bool:
        """Whether the cell can be filled from this run, as far as everything but its model goes."""
        return (
            self.benchmark == want.benchmark
            and (self.settings["when"], self.settings["what"]) == (want.when, want.what)
            and want.threshold in (None, self.settings["threshold"])
            and want.retriever in (None, self.retriever)
        )

    def caveats(self, want: Want, n: int) -> list[str]:
        """What keeps a value of ours, over ``n`` questions, from being comparable to the paper's."""
        remarks = []
        if self.almanac:
            remarks.append("on Almanac's questions: the form of this benchmark, a world and passages of their own")
        if n < self.asked:
            why = f"{len(self.record.failed)} failed" if self.record.failed else "the run is not complete"
            remarks.append(f"n = {n} of {self.asked} questions ({self.folder}: {why})")
        if want.retriever is None and self.retriever not in (None, BM25):
            remarks.append(f"passages by {self.searched_with}, where the paper has BM25")
        if want.retriever not in (None, BM25) and "sgpt" not in self.searched_with.lower():
            remarks.append(f"passages by {self.searched_with}, where the paper has SGPT")
        if self.settings["variant"] != "reference":
            remarks.append(f"{self.settings['variant']} variant")
        return remarks

    def has_published_threshold(self) -> bool:
        """Whether its threshold is that of Table 9 for the model and benchmark."""
        if self.paper_model is None or self.benchmark is None or self.settings["when"] != OWN_TRIGGER:
            return False
        preset = find_preset(self.paper_model, self.benchmark, source="paper")
        return bool(self.settings["threshold"] == preset.settings["threshold"])

    def has_default_settings(self) -> bool:
        """Whether the settings that sweeps go over are the method's own."""
        used: dict[str, Any] = self.settings
        own = method(used["name"], variant=used["variant"], when=used["when"], what=used["what"])
        return all(used.get(name) == own.settings.get(name) for name in ("threshold", "top_n", "n"))


#: Which of several runs that fit a cell is taken: real questions before Almanac's, BM25, the reference variant, the
#: threshold of Table 9, the method's default. The last one makes a method, for which spaCy has to be there.
PREFERENCES: tuple[Callable[[Source], bool], ...] = (
    lambda source: not source.almanac,
    lambda source: source.retriever in (None, BM25),
    lambda source: source.settings["variant"] == "reference",
    Source.has_published_threshold,
    Source.has_default_settings,
)


def _benchmark(dataset: str) -> str | None:
    """The benchmark that a data set is, by its name or that of the file as released."""
    name = dataset.removeprefix("almanac/")
    for split in _SPLITS:
        name = name.removesuffix(split)
    stems = {Path(file).stem: kind for kind, file in FILES.items() if Path(file).stem != "dev"}
    stems |= {stem.removesuffix(split): kind for stem, kind in stems.items() for split in _SPLITS}
    return name if name in BENCHMARKS else stems.get(name)
