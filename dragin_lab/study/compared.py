"""``Compared``: methods side by side on the same questions; behind every table, figure and test of
several methods.

A question is known by its words and gold answers, a data set by its questions, a method by its
folder's label. Where one label stands for several models or runs, what tells them apart is added to
it, so that no name has two meanings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np

from dragin_lab.checks import choice
from dragin_lab.run.intervals import MEASURES, Interval, intervals_of
from dragin_lab.run.rundir import SCORES, Line, RunRecord, own_metrics, value_of
from dragin_lab.study.conditions import At, identify_model, identify_passages, list_first
from dragin_lab.study.statistics import PairedTest, paired_all

#: A question: its words, its gold answers, and its id where a data set asks it more than once.
Key = tuple[str, tuple[str, ...], str]
Of = TypeVar("Of")
ON = ("common", "all")


class Compared:
    """What methods answered on the questions that all of them answered (``on="common"``), or each
    on its own ("all").

    ``lines`` are prediction lines by data set and method, then by question id. In a data set the
    methods that have a sound answer there are compared: one that has none, or failed everywhere,
    takes no question from the others.
    """

    def __init__(self, lines: Mapping[At, Mapping[str, Line]], on: str = "common") -> None:
        self.on = choice("on", on, ON)
        self.every = key_questions(lines)
        self.datasets = tuple(dict.fromkeys(dataset for dataset, _ in lines))
        self.names = tuple(dict.fromkeys(name for _, name in lines))
        self.metrics = own_metrics(line for of_run in lines.values() for line in of_run.values())
        self._sound = {
            at: {key: line for key, line in of_run.items() if line["ended"] != "error"}
            for at, of_run in self.every.items()
        }
        self.asked = {
            of: [*dict.fromkeys(k for at in self._of(of) for k in self.every[at])]
            for of in self.datasets
        }
        self.common = {
            of: self._shared([self._sound[at] for at in self._of(of)], of) for of in self.datasets
        }

    def _of(self, dataset: str) -> list[At]:
        return [at for at in self.every if at[0] == dataset]

    def _shared(self, answered: Iterable[Mapping[Key, Line]], dataset: str) -> list[Key]:
        taking_part = [lines for lines in answered if lines]
        return [
            key
            for key in self.asked[dataset]
            if taking_part and all(key in lines for lines in taking_part)
        ]

    def lines(self, at: At) -> dict[Key, Line]:
        """The sound lines of a method that are compared, in the order of the questions."""
        sound = self._sound.get(at, {})
        return (
            sound
            if self.on == "all"
            else {key: sound[key] for key in self.common[at[0]] if key in sound}
        )

    @cached_property
    def pooled(self) -> dict[str, dict[tuple[str, Key], Line]]:
        """The lines of each method over all data sets, by data set and question: those in all
        methods, or its own.
        """
        own = {
            name: {
                (of, key): line
                for of in self.datasets
                for key, line in self._sound.get((of, name), {}).items()
            }
            for name in self.names
        }
        if self.on == "all":
            return own
        taking_part = [lines for lines in own.values() if lines]
        return {
            name: {
                at: line for at, line in lines.items() if all(at in other for other in taking_part)
            }
            for name, lines in own.items()
        }

    @cached_property
    def intervals(self) -> dict[tuple[At, str], Interval]:
        """The mean of each measure of a run with its 95 % interval, where it has values; all are
        drawn together.
        """
        values = {
            (at, key): [*values_of(self.lines(at), key).values()]
            for at in self.every
            for key in self._all
        }
        there = {place: column for place, column in values.items() if column}
        found = intervals_of([(measure, column) for (_, measure), column in there.items()])
        return dict(zip(there, found, strict=True))

    def tests(self, base: str) -> dict[tuple[At, str], PairedTest]:
        """Every other method against ``base`` in each data set, on the questions that both
        answered.
        """
        pairs = {at: (at[0], base) for at in self.every if at[1] != base}
        return compare_pairs({at: self.lines(at) for at in self.every}, pairs, self._all)

    @property
    def _all(self) -> tuple[str, ...]:
        return (*MEASURES, *self.metrics)

    # -- what is compared, in words ----------------------------------------------------------------

    @property
    def about(self) -> list[str]:
        """Lines on the questions that are not in all methods."""
        lines = []
        for dataset in self.datasets:
            runs, asked = self._of(dataset), self.asked[dataset]
            where = f" of {dataset}" if len(self.datasets) > 1 else ""
            if lacking := [name for name in self.names if (dataset, name) not in self.every]:
                lines.append(
                    f"{dataset} is not in all methods (no run of {list_first(lacking)}): only the"
                    " same questions are compared"
                )
            counts = {name: len(self.lines((of, name))) for of, name in runs}
            if self.on == "all" and len({*counts.values()}) > 1:
                each = ", ".join(f"{name} {n:,}" for name, n in counts.items())
                lines.append(
                    f"each method on its own questions{where}, so the means are of others: {each}"
                )
            missing = len(asked) - len(self.common[dataset])
            if self.on == "common" and missing:
                lines.append(
                    f"{missing:,} of {len(asked):,} questions{where} are not in all methods and are"
                    f" left out: {self._why(dataset)}; on='all' takes each method's own"
                )
        return lines

    @property
    def about_pooled(self) -> list[str]:
        """Over which questions ``pooled`` is, and how many are not in all methods."""
        counts = {name: len(lines) for name, lines in self.pooled.items() if lines}
        if self.on == "all" and len({*counts.values()}) > 1:
            return [
                "each method on its own questions: "
                + ", ".join(f"{name} {n:,}" for name, n in counts.items())
            ]
        sets = dict.fromkeys(dataset for lines in self.pooled.values() for dataset, _ in lines)
        n, asked = max(counts.values(), default=0), sum(map(len, self.asked.values()))
        on = f"{n:,} question{'s' * (n != 1)}" + (f" of {', '.join(sets)}" if sets else "")
        missing = (
            f"; {asked - n:,} of {asked:,} are not in all methods and are left out"
            if n < asked
            else ""
        )
        return [on + missing]

    def _why(self, dataset: str) -> str:
        """Which methods lack questions, or failed on some."""
        said = []
        for at in self._of(dataset):
            failed = len(self.every[at]) - len(self._sound[at])
            absent = len(self.asked[dataset]) - len(self.every[at])
            parts = [f"lacks {absent:,}"] * (absent > 0) + [f"failed on {failed:,}"] * (failed > 0)
            said += [f"{at[1]} {' and '.join(parts)}"] if parts else []
        return list_first(said)


def key_questions(lines: Mapping[At, Mapping[str, Line]]) -> dict[At, dict[Key, Line]]:
    twice: set[tuple[str, str, tuple[str, ...]]] = set()
    for (dataset, _), of_run in lines.items():
        counts = Counter(_asked(line) for line in of_run.values())
        twice |= {(dataset, *asked) for asked, count in counts.items() if count > 1}

    def key(dataset: str, id: str, line: Line) -> Key:
        asked = _asked(line)
        return (*asked, id if (dataset, *asked) in twice else "")

    return {
        at: {key(at[0], id, line): line for id, line in of_run.items()}
        for at, of_run in lines.items()
    }


def _asked(line: Line) -> tuple[str, tuple[str, ...]]:
    return line["question"].strip(), tuple(line["gold"])


def compare_pairs(
    lines: Mapping[Of, Mapping[Any, Line]], against: Mapping[Of, Of], measures: Iterable[str]
) -> dict[tuple[Of, str], PairedTest]:
    """Each of ``against`` tested against what it names, by measure, on the questions where both
    have a value.
    """
    pairs = {}
    for (one, base), measure in product(against.items(), measures):
        own, others = (values_of(lines.get(of, {}), measure) for of in (one, base))
        if both := [key for key in own if key in others]:
            pairs[one, measure] = (
                [own[key] for key in both],
                [others[key] for key in both],
                measure in SCORES,
            )
    return dict(zip(pairs, paired_all([*pairs.values()]), strict=True))


def values_of(lines: Mapping[Any, Line], measure: str) -> dict[Any, float]:
    """The values of a measure, where lines have one."""
    values = {key: value_of(line, measure) for key, line in lines.items()}
    return {key: value for key, value in values.items() if value is not None}


# -- what runs are called --------------------------------------------------------------------------


def name_runs(records: Sequence[RunRecord]) -> dict[At, RunRecord]:
    """Runs by data set and method: by the name of their questions, and the label of their folder.

    A name that would mean two things is told apart: a data set by its fingerprint, a method by the
    first of its model, passages, seed and folder that does.
    """
    datasets, told = _name_datasets(records), [list[str]() for _ in records]

    def name(place: int) -> str:
        label = records[place].label
        return f"{label} ({', '.join(told[place])})" if told[place] else label

    for tell in _TELLING:
        names = [name(place) for place in range(len(records))]
        for clashing in _find_clashes(records, datasets, names):
            places = [place for place, one in enumerate(names) if one == clashing]
            if len({tell(records[place]) for place in places}) > 1:
                for place in places:
                    told[place].append(tell(records[place]))
    return {(dataset, name(place)): records[place] for place, dataset in enumerate(datasets)}


def _find_clashes(
    records: Sequence[RunRecord], datasets: Sequence[str], names: Sequence[str]
) -> set[str]:
    """Names of several runs on one data set, or of several models."""
    places = Counter(zip(datasets, names, strict=True))
    models: dict[str, set[str]] = {}
    for record, name in zip(records, names, strict=True):
        models.setdefault(name, set()).add(identify_model(record.config)[1])
    return {name for (_, name), count in places.items() if count > 1} | {
        n for n, of in models.items() if len(of) > 1
    }


def _name_model(record: RunRecord) -> str:
    return PurePath(str(record.config["model"].get("model"))).name


def _name_weights(record: RunRecord) -> str:
    return f"{_name_model(record)} {str(record.config['model'].get('weights_sha256'))[:6]}"


_TELLING: tuple[Callable[[RunRecord], str], ...] = (
    _name_model,
    _name_weights,
    lambda record: (identify_passages(record.config) or ("no passages", ""))[0],
    lambda record: f"seed {record.config['seed']}",
    lambda record: str(record.folder.parent),
    lambda record: str(record.folder),
)


def _name_datasets(records: Sequence[RunRecord]) -> list[str]:
    """What the data set of each run is called; runs of the same questions are of one, whatever
    their file is called.
    """
    from scipy.sparse.csgraph import connected_components

    names = [str(record.config["dataset"]["name"]) for record in records]
    marks = [str(record.config["dataset"].get("fingerprint")) for record in records]
    asked = [set(map(_asked, record.predictions)) for record in records]

    def alike(one: int, other: int) -> bool:
        shared = not asked[one].isdisjoint(asked[other]) or not (asked[one] and asked[other])
        return marks[one] == marks[other] or (names[one] == names[other] and shared)

    places = range(len(records))
    pairs = [alike(one, other) for one in places for other in places]
    graph = np.reshape(pairs, (len(records), len(records)))  # (runs, runs) bool
    groups = connected_components(graph)[1].tolist()
    first = [groups.index(group) for group in groups]  # the first run of each one's data set
    called = Counter(names[at] for at in {*first})
    return [
        names[at] if called[names[at]] == 1 else f"{names[at]} ({marks[at][:6]})" for at in first
    ]
