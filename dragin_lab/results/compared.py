"""``Compared``: methods side by side on the same questions, and remarks where what must be the same
is not; behind every table, figure and test of several methods.

A question is known by its words and gold answers, a data set by its questions, a method by its
folder's label. Where one label stands for several models or runs, what tells them apart is added to
it, so that no name has two meanings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations, product
from pathlib import PurePath
from typing import Any, TypeVar

from dragin_lab.checks import choice
from dragin_lab.core.fingerprint import list_changes
from dragin_lab.errors import SettingError
from dragin_lab.results.statistics import PairedTest, paired_all
from dragin_lab.run.intervals import MEASURES, Interval, intervals_of
from dragin_lab.run.rundir import (
    LEAST,
    PEAK,
    SCORES,
    Facts,
    Line,
    RunRecord,
    own_metrics,
    value_of,
)
from dragin_lab.text import write_compared

#: A run of more questions than this in which the trigger never fired, or at every draft, is warned
#: of.
FEW = 20
At = tuple[str, str]  # data set and method
Named = Mapping[At, RunRecord]  # runs by what they are called
Part = tuple[str, str]  # of a run: its name, and what it is
_NAMED = 3  # ids and methods that a message names
#: A question: its words, its gold answers, and its id where a data set asks it more than once.
Key = tuple[str, tuple[str, ...], str]
Pooled = dict[tuple[str, Key], Line]
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
        self._sound = {at: _without_failed(of_run) for at, of_run in self.every.items()}

    def __repr__(self) -> str:
        common = sum(map(len, self.common.values()))
        return f"Compared({len(self.names)} methods, {common} questions in common, on={self.on!r})"

    def _of(self, dataset: str) -> list[At]:
        return [at for at in self.every if at[0] == dataset]

    @cached_property
    def asked(self) -> dict[str, list[Key]]:
        """The questions of each data set, in order."""
        asked = {dataset: dict[Key, None]() for dataset in self.datasets}
        for (dataset, _), lines in self.every.items():
            asked[dataset] |= dict.fromkeys(lines)
        return {dataset: [*keys] for dataset, keys in asked.items()}

    @cached_property
    def common(self) -> dict[str, list[Key]]:
        """Those that all methods answered."""
        common = {}
        for dataset, asked in self.asked.items():
            shared = in_all([self._sound[at] for at in self._of(dataset)])
            common[dataset] = [key for key in asked if key in shared]
        return common

    def lines(self, at: At) -> dict[Key, Line]:
        """The sound lines of a method that are compared, in the order of the questions."""
        sound = self._sound.get(at, {})
        if self.on == "all":
            return sound
        return {key: sound[key] for key in self.common[at[0]] if key in sound}

    @cached_property
    def pooled(self) -> dict[str, Pooled]:
        """The lines of each method over all data sets, by data set and question: those in all
        methods, or its own.
        """
        pooled: dict[str, Pooled] = {name: {} for name in self.names}
        for (dataset, name), lines in self._sound.items():
            pooled[name] |= {(dataset, key): line for key, line in lines.items()}
        if self.on == "common":
            shared = in_all(pooled.values())
            for own in pooled.values():
                for place in own.keys() - shared:
                    del own[place]
        return pooled

    @cached_property
    def intervals(self) -> dict[tuple[At, str], Interval]:
        """The mean of each measure of a run with its 95 % interval, where it has values; all are
        drawn together.
        """
        columns = {}
        for at, measure in product(self.every, self._all):
            values = [*values_of(self.lines(at), measure).values()]
            if values:
                columns[at, measure] = values
        intervals = intervals_of([(measure, values) for (_, measure), values in columns.items()])
        return dict(zip(columns, intervals, strict=True))

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
            where = f" of {dataset}" if len(self.datasets) > 1 else ""
            lacking = [name for name in self.names if (dataset, name) not in self.every]
            if lacking:
                lines.append(
                    f"{dataset} is not in all methods (no run of {list_first(lacking)}): only the"
                    " same questions are compared"
                )
            counts = {name: len(self.lines((of, name))) for of, name in self._of(dataset)}
            if self.on == "all":
                lines += _say_unequal(counts, where)
                continue
            asked = len(self.asked[dataset])
            missing = asked - len(self.common[dataset])
            if missing:
                left_out = _say_left_out(missing, f"{asked:,} questions{where}")
                why = self._why(dataset)
                lines.append(f"{left_out}: {why}; on='all' takes each method's own")
        return lines

    @property
    def about_pooled(self) -> list[str]:
        """Over which questions ``pooled`` is, and how many are not in all methods."""
        counts = {name: len(lines) for name, lines in self.pooled.items() if lines}
        unequal = _say_unequal(counts, "") if self.on == "all" else []
        if unequal:
            return unequal
        n = max(counts.values(), default=0)
        on = "1 question" if n == 1 else f"{n:,} questions"
        datasets = dict.fromkeys(of for lines in self.pooled.values() for of, _ in lines)
        if datasets:
            on += f" of {', '.join(datasets)}"
        asked = sum(map(len, self.asked.values()))
        if n < asked:
            on += f"; {_say_left_out(asked - n, f'{asked:,}')}"
        return [on]

    def _why(self, dataset: str) -> str:
        """Which methods lack questions, or failed on some."""
        methods = []
        for at in self._of(dataset):
            absent = len(self.asked[dataset]) - len(self.every[at])
            failed = len(self.every[at]) - len(self._sound[at])
            lacks = []
            if absent:
                lacks.append(f"lacks {absent:,}")
            if failed:
                lacks.append(f"failed on {failed:,}")
            if lacks:
                methods.append(f"{at[1]} {' and '.join(lacks)}")
        return list_first(methods)


def _without_failed(lines: Mapping[Key, Line]) -> dict[Key, Line]:
    return {key: line for key, line in lines.items() if line["ended"] != "error"}


def in_all(lines: Iterable[Mapping[Of, Line]]) -> set[Of]:
    """The questions of all methods that have any."""
    taking_part = [set(keys) for keys in lines if keys]
    return set.intersection(*taking_part) if taking_part else set()


def _say_unequal(counts: Mapping[str, int], where: str) -> list[str]:
    """That methods are not over the same questions, where their numbers differ."""
    if len({*counts.values()}) < 2:
        return []
    each = ", ".join(f"{name} {n:,}" for name, n in counts.items())
    return [f"each method on its own questions{where}, so the means are of others: {each}"]


def _say_left_out(missing: int, questions: str) -> str:
    return f"{missing:,} of {questions} are not in all methods and are left out"


def key_questions(lines: Mapping[At, Mapping[str, Line]]) -> dict[At, dict[Key, Line]]:
    """The lines of each run by question; by its id too, where a run asks it twice."""
    twice = set()
    for (dataset, _), of_run in lines.items():
        counts = Counter(map(_asked, of_run.values()))
        for asked, count in counts.items():
            if count > 1:
                twice.add((dataset, *asked))

    def key(dataset: str, id: str, line: Line) -> Key:
        asked = _asked(line)
        return (*asked, id if (dataset, *asked) in twice else "")

    return {
        at: {key(at[0], id, line): line for id, line in of_run.items()}
        for at, of_run in lines.items()
    }


def _asked(line: Line) -> tuple[str, tuple[str, ...]]:
    return line["question"].strip(), tuple(sorted(line["gold"]))


def compare_pairs(
    lines: Mapping[Of, Mapping[Any, Line]], against: Mapping[Of, Of], measures: Iterable[str]
) -> dict[tuple[Of, str], PairedTest]:
    """Each of ``against`` tested against what it names, by measure, on the questions where both
    have a value.
    """
    pairs = {}
    for (name, base), measure in product(against.items(), measures):
        first = values_of(lines.get(name, {}), measure)
        second = values_of(lines.get(base, {}), measure)
        both = [key for key in first if key in second]
        if both:
            a = [first[key] for key in both]
            b = [second[key] for key in both]
            scores = measure in SCORES
            pairs[name, measure] = (a, b, scores)
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
    datasets = _name_datasets(records)
    remarks = [list[str]() for _ in records]
    for tell in _TELLING:
        names = list(map(_name_run, records, remarks))
        for places in _find_clashes(records, datasets, names):
            telling = {place: tell(records[place]) for place in places}
            if len({*telling.values()}) > 1:
                for place, remark in telling.items():
                    remarks[place].append(remark)
    names = list(map(_name_run, records, remarks))
    return dict(zip(zip(datasets, names, strict=True), records, strict=True))


def _name_run(record: RunRecord, remarks: Sequence[str]) -> str:
    return f"{record.label} ({', '.join(remarks)})" if remarks else record.label


def _find_clashes(
    records: Sequence[RunRecord], datasets: Sequence[str], names: Sequence[str]
) -> list[list[int]]:
    """The places of runs of one name that are several on one data set, or of several models."""
    clashes = []
    for name in dict.fromkeys(names):
        places = [place for place, other in enumerate(names) if other == name]
        on = {datasets[place] for place in places}
        models = {identify_model(records[place].config)[1] for place in places}
        if len(on) < len(places) or len(models) > 1:
            clashes.append(places)
    return clashes


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
    names = [record.dataset for record in records]
    marks = [str(record.config["dataset"].get("fingerprint")) for record in records]
    first = _find_first(records, names, marks)
    called = Counter(names[at] for at in {*first})
    described = []
    for at in first:
        mark = f" ({marks[at][:6]})" if called[names[at]] > 1 else ""
        described.append(names[at] + mark)
    return described


def _find_first(
    records: Sequence[RunRecord], names: Sequence[str], marks: Sequence[str]
) -> list[int]:
    """The place of the first run on each one's data set."""
    asked = [set(map(_asked, record.predictions)) for record in records]
    first = list(range(len(records)))
    for one, other in combinations(range(len(records)), 2):
        here = asked[one]
        there = asked[other]
        apart = here and there and here.isdisjoint(there)
        marked_alike = marks[one] == marks[other]
        named_alike = names[one] == names[other]
        if marked_alike or (named_alike and not apart):
            earlier, later = sorted((first[one], first[other]))
            first = [earlier if place == later else place for place in first]
    return first


# -- what must be the same in all runs -------------------------------------------------------------


def check_same_golds(records: Named) -> None:
    """Refuse runs that were scored against other gold answers on the same questions of a file.

    Raises ``SettingError`` that names the first ids.
    """
    first: dict[tuple[str, str, str], tuple[str, Line]] = {}  # by data set, id and question
    for (_, name), record in records.items():
        differing = []
        for line in record.predictions:
            at = record.dataset, line["id"], line["question"].strip()
            other, known = first.setdefault(at, (name, line))
            if set(known["gold"]) != set(line["gold"]):
                differing.append((line["id"], other, known["gold"], line["gold"]))
        if differing:
            qid, other, theirs, golds = differing[0]
            named = list_first([qid for qid, *_ in differing])
            raise SettingError(
                f"{other!r} and {name!r} were scored against other gold answers: those of {named}"
                f" differ, for {qid!r} they are {theirs!r:.80} and {golds!r:.80}; give runs of the"
                " same file"
            )


def list_differences(records: Named) -> list[str]:
    """Lines on models, passages and exemplars that are not the same in all runs of a data set, and
    on your own metrics that are not defined alike in all runs.
    """
    kinds = {
        "models": identify_model,
        "passages": identify_passages,
        "exemplars": _identify_exemplars,
    }
    lines = []
    datasets = dict.fromkeys(dataset for dataset, _ in records)
    for dataset, (kind, read) in product(datasets, kinds.items()):
        where = f" on {dataset}" if len(datasets) > 1 else ""
        configs = {name: record.config for (on, name), record in records.items() if on == dataset}
        groups = _group_alike({name: read(config) for name, config in configs.items()})
        if len(groups) > 1:
            lines.append(f"{kind} differ{where}: {'; '.join(groups)}")
    return [*dict.fromkeys(lines), *_list_other_metrics(records)]


def _group_alike(parts: Mapping[str, Part | None]) -> list[str]:
    """Which methods have one part, and how it is called; a part is a name and what it is."""
    alike: dict[str, tuple[str, list[str]]] = {}
    for method, part in parts.items():
        if part is not None:
            name, identity = part
            alike.setdefault(identity, (name, []))[1].append(method)
    groups: list[str] = []
    called: set[str] = set()
    for name, methods in alike.values():
        another = " (another)" if name in called else ""
        groups.append(f"{list_first(methods)}: {name}{another}")
        called.add(name)
    return groups


def _list_other_metrics(records: Named) -> list[str]:
    definitions: dict[str, dict[At, Any]] = {}
    for at, record in records.items():
        for label, node in record.config.get("given", {}).items():
            if label.startswith("metric "):
                definitions.setdefault(label, {})[at] = node
    lines = []
    for label, nodes in definitions.items():
        (first, before), *others = nodes.items()
        changes = {at: list_changes(before, node, label) for at, node in others}
        differing = [at for at in changes if changes[at]]
        if differing:
            names = list_first([f"{method} on {dataset}" for dataset, method in differing])
            change = changes[differing[0]][0]
            lines.append(
                f"{label} is not defined in {names} as in {first[1]} on {first[0]} ({change}): its"
                " means are not of one measure"
            )
    return lines


def list_idle_thresholds(records: Named) -> list[str]:
    """A warning for each run of more than ``FEW`` questions whose threshold lies above all
    scores, or below all.
    """
    lines = []
    hint = "Choose it by what it costs: threshold=lab.budget(questions, 1.5)"
    for (dataset, name), record in records.items():
        theta = record.config["method"].get("threshold")
        sound = record.sound
        if theta is None or len(sound) <= FEW:
            continue
        asked = f"{len(sound):,} questions ({dataset})"
        least = _read_scores(record, LEAST)
        retrieved = [line["retrievals"] > 0 for line in sound]
        if not any(retrieved):
            peaks = _read_scores(record, PEAK)
            peak, limit = write_compared(max(peaks, default=theta), theta)
            highest = f"; the highest was {peak}" if peaks else ""
            lines.append(
                f"warning: {name} never retrieved: no score in {asked} was above the threshold of"
                f" {limit}{highest}. {hint}"
            )
        elif all(retrieved) and len(least) >= len(sound) and min(least) > theta:
            lowest, limit = write_compared(min(least), theta)
            lines.append(
                f"warning: {name} retrieved at every draft of {asked}: in each a score was above"
                f" the threshold of {limit}, at least {lowest}. {hint}"
            )
    return lines


def _read_scores(record: RunRecord, name: str) -> list[float]:
    return [line[name] for line in record.timings.values() if line.get(name) is not None]


def list_first(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return f"{listed} and {more} more" if more > 0 else listed


def identify_model(config: Facts) -> Part:
    model = config["model"]
    identity = [model.get(key) for key in ("model", "weights_sha256", "dtype", "quantization")]
    return str(model.get("model")), json.dumps(identity)


def identify_passages(config: Facts) -> Part | None:
    """None for a method that never searches."""
    if (used := config.get("retriever")) is None:
        return None
    # who chose it changes nothing
    identity = {key: value for key, value in used.items() if key != "chosen"}
    named = " ".join(str(used[key]) for key in ("kind", "model", "corpus") if used.get(key))
    return named or "unnamed", json.dumps(identity, sort_keys=True)


def _identify_exemplars(config: Facts) -> Part:
    template = config["template"]
    exemplars = template["exemplars"]
    unnamed = f"{len(exemplars)} of your own" if exemplars else "none"
    name = template.get("chosen") or unnamed
    form = template.get("form", "reasoning")
    if form != "reasoning":
        name += f" (form {form})"
    return name, json.dumps(exemplars, sort_keys=True)
