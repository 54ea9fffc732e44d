"""Finished runs as one object: questions as a table, means with intervals, paired tests, questions
by outcome.

``Runs.load("runs/bench")`` takes every run directory below a folder, of any benchmark and of your
own files; it reads a zip of such a folder too (``shutil.make_archive``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from dragin_lab.checks import check_text, choice, several, shown
from dragin_lab.drawn import Drawn
from dragin_lab.errors import RunError, SettingError, TraceFileError
from dragin_lab.results.causes import CAUSES, Cause, CauseFinder
from dragin_lab.results.compared import (
    Compared,
    Key,
    check_same_golds,
    compare_pairs,
    in_all,
    list_differences,
    name_runs,
)
from dragin_lab.results.differing import Difference, read_difference
from dragin_lab.results.funnel import count_funnel, list_retrievals
from dragin_lab.results.table import Table, means_table
from dragin_lab.run.intervals import describe_failures
from dragin_lab.run.rundir import ById, Line, RunRecord, find_runs, value_of
from dragin_lab.trace.trace import Trace
from dragin_lab.warning import warn

_RIGHT = 1.0  # an exact match below this is wrong
#: The columns of ``Runs.questions`` that depend on what a comparison tests.
ANSWER_COLUMNS = ("right", "em", "f1", "answer", "readable", "cause", "why")


class Runs:
    """Runs of any benchmarks, by method, in the order of their folders.

    ``names`` are the methods, each by the name of its runs' folders, ``datasets`` the data sets
    that they answered, ``metrics`` the custom metrics that some answer was scored by.

    Args:
        records: run directories as they were read; a copy of another one counts once.
    """

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self.records: list[RunRecord] = []
        for record in several("runs", records, RunRecord, "give folders to Runs.load"):
            if record not in self.records:
                self.records.append(record)
        if not self.records:
            raise SettingError(
                "there are no runs; give folders that 'dragin-lab run --output' wrote"
            )
        self._by = name_runs(self.records)  # by data set and method
        check_same_golds(self._by)
        self._lines = {at: record.by_id for at, record in self._by.items()}
        every = Compared(self._lines, "all")
        self._keys = every.every
        self.names = every.names
        self.datasets = every.datasets
        self.metrics = every.metrics
        # data sets and questions; None: all of them
        self._chosen: frozenset[tuple[str, Key]] | None = None
        self._chosen_by: tuple[str, ...] = ()  # the expressions that chose them
        # the methods by whose answers they were chosen
        self._choosing: frozenset[str] = frozenset()
        self._compared: dict[str, Compared] = {}
        self._finders: dict[str, CauseFinder] = {}
        self._causes: dict[tuple[Path, str], Cause | None] = {}

    @classmethod
    def load(cls, paths: str | Path | Iterable[str | Path]) -> Runs:
        """Every run at or below some folders, and in zips of them.

        Raises ``RunError`` for a path without one, and for a damaged run or zip.
        """
        return cls(find_runs(paths))

    def lines(self, dataset: str, name: str) -> ById:
        """The lines of a method by question id; none where it has not answered the data set."""
        at = check_text("dataset", dataset), check_text("name", name)
        if self._chosen is None:
            return self._lines.get(at, {})
        keyed = self._keys.get(at, {}).items()
        return {line["id"]: line for key, line in keyed if (dataset, key) in self._chosen}

    def compared(self, on: str = "common") -> Compared:
        """The methods on the questions that all of them answered, or each on its own
        (``on="all"``).
        """
        if on not in self._compared:
            self._compared[on] = Compared({at: self.lines(*at) for at in self._by}, on)
        return self._compared[on]

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """``questions`` without causes and types, which need no trace."""
        rows = []
        for (dataset, name), record in self._by.items():
            for qid, line in self.lines(dataset, name).items():
                rows.append(
                    {
                        "dataset": dataset,
                        "id": qid,
                        "method": name,
                        "question": line["question"],
                        "gold": " | ".join(line["gold"]),
                        "answer": line["answer"],
                        "right": None if line["em"] is None else line["em"] >= _RIGHT,
                        **{key: line[key] for key in ("em", "f1", "retrievals", "tokens")},
                        "seconds": record.timings.get(qid, {}).get("seconds"),
                        "ended": line["ended"],
                        "readable": line["readable"],
                        **{metric: value_of(line, metric) for metric in self.metrics},
                    }
                )
        if not rows:
            raise SettingError(
                "no question has an answer yet; complete the run, or take another selection"
            )
        kinds = {"right": "boolean"} | dict.fromkeys(
            ("em", "f1", "seconds", *self.metrics), "float"
        )
        return pd.DataFrame(rows).astype(kinds)

    @cached_property
    def questions(self) -> pd.DataFrame:
        """One row per question and method (pandas.DataFrame).

        dataset, id, method, question, gold, answer, right (missing without a gold answer), em, f1,
        retrievals, tokens, seconds, ended, readable, custom metrics; then cause and why (of wrong
        answers, ``causes``), type (where there are labels). Wrong answers are looked up in their
        traces, which takes some milliseconds each.
        """
        frame = self.outcomes.copy()
        causes = [self.cause(row.id, row.method, row.dataset) for row in frame.itertuples()]
        labels = [
            self.cause_finder(row.dataset).label(row.id, row.question) for row in frame.itertuples()
        ]
        frame["cause"] = [cause and cause.kind for cause in causes]
        frame["why"] = [cause and cause.why for cause in causes]
        frame["type"] = [labelled and labelled.type for labelled in labels]
        return frame

    def table(self, *, compare: str | None = None, on: str = "common") -> Table:
        """One row per method (``Table``): exact match, F1, retrievals and tokens a question with 95
        % intervals.

        The means are over the questions that all methods answered, or each over its own
        (``on="all"``); a line below says how many are left out. Custom metrics stand beside F1.
        ``unreadable`` counts the answers that could not be read from the text. ``compare`` names a
        method that the others are tested against on the same questions (``statistics.paired``); not
        where ``where`` chose the questions by their answers.
        """
        base = "" if compare is None else choice("method", compare, self.names)
        table = means_table(self._by, self.compared(on), "" if self._choosing else base)
        table.about += remark_selection(self._chosen_by, self._choosing, self.names if base else ())
        return table

    # quality against cost; where retrievals go; how much was doubted
    plot = Drawn()
    funnel = Drawn()
    doubt = Drawn()

    def tests(self, against: str, *, on: str = "common") -> pd.DataFrame:
        """Every other method against one, in pairs (pandas.DataFrame): a row per method and
        measure.

        The mean difference on the questions that all methods answered (``on="all"``: that both
        did), its 95 % interval (low, high), p_value (em: McNemar's exact test, else by permutation)
        and n; then on how many of them the method was better (won), worse (lost), and neither
        (tied). ``attrs["notes"]`` says which questions were left out, what is not the same in all
        runs, and how questions were chosen. A method is left out where ``where`` chose the
        questions by its answers or those of ``against``. Raises ``SettingError`` where none is
        left, and where no question with a gold answer is in common.
        """
        base = choice("method", against, self.names)
        compared = self.compared(on)
        notes = remark_selection(self._chosen_by, self._choosing, self.names)
        notes += compared.about + list_differences(self._by)
        compared_with = [name for name in self.names if not self._choosing & {name, base}]
        pairs = {name: base for name in compared_with if name != base}
        tests = compare_pairs(compared.pooled, pairs, ("em", "f1", *self.metrics))
        if not tests:
            none = (
                f"no other method has a question with a gold answer in common with {base!r}; run"
                " them on the same"
            )
            raise SettingError(
                "; ".join(notes if self._choosing else [none, *self._list_failures(), *notes])
            )
        index = pd.MultiIndex.from_tuples(tests, names=["method", "measure"])
        table = pd.DataFrame([*tests.values()], index=index).drop(columns="floor").reset_index()
        table["tied"] = table["n"] - table["won"] - table["lost"]
        table.attrs["notes"] = notes
        return table

    def difference(self, one: str, other: str) -> Difference:
        """The questions that ``one`` has right and ``other`` wrong, or the other way round
        (``Difference``).

        Its ``.table`` has both answers and the cause of the wrong one, ``.plot()`` draws them.
        Raises ``SettingError`` where no question with a gold answer is in common.
        """
        for name in (one, other):
            choice("method", name, self.names)
        both = {at: record for at, record in self._by.items() if at[1] in (one, other)}
        compared = Compared({at: self.lines(*at) for at in both})
        second = compared.pooled[other]
        pairs = []
        for at, line in compared.pooled[one].items():
            if at in second and line["em"] is not None:
                pairs.append((at[0], line, second[at]))
        if one == other or not pairs:
            none = f"{one!r} and {other!r} have no question with a gold answer in common"
            raise SettingError(
                "; ".join(["give two methods" if one == other else none, *self._list_failures()])
            )
        about = compared.about + list_differences(both)
        return read_difference(self, one, other, pairs, about)

    def _list_failures(self) -> list[str]:
        return describe_failures([line for record in self.records for line in record.predictions])

    @cached_property
    def causes(self) -> pd.DataFrame:
        """How many answers of each method are wrong by each cause (pandas.DataFrame): one row per
        cause.

        Counted over the questions that all methods answered, or failed on; ``attrs["notes"]`` says
        what is left out.
        """
        compared = self.compared()
        counts = {name: Counter[str]() for name in self.names}
        for dataset in self.datasets:
            runs = {at[1]: lines for at, lines in compared.every.items() if at[0] == dataset}
            shared = in_all(runs.values())
            for name, lines in runs.items():
                for key in shared & lines.keys():
                    cause = self.cause(lines[key]["id"], name, dataset)
                    if cause is not None:
                        counts[name][cause.kind] += 1
        table = pd.DataFrame(counts, index=[*CAUSES]).fillna(0).astype(int)
        table = table[table.any(axis="columns")].rename_axis(index="cause", columns="method")
        table.attrs["notes"] = compared.about
        return table

    @cached_property
    def retrievals(self) -> pd.DataFrame:
        """One row per retrieval of the attributed answers (pandas.DataFrame): was it needed, found,
        used?

        dataset, id, method, question, answer, right, and the columns of ``Attribution.retrievals``;
        ``found`` goes by labelled passages or gold titles, ``holds gold`` by the gold answers.
        Raises ``SettingError`` where no answer is attributed: ``lab.run(...,
        attribute=True)`` does it.
        """
        return list_retrievals(self)

    def funnel_table(self, by: str = "method") -> pd.DataFrame:
        """How many retrievals were asked for, found, used, and part of a right answer
        (pandas.DataFrame).

        ``found``, ``holds gold``, ``used`` and ``lost`` are shares: the first two of those known,
        ``used`` of all, ``lost`` of those that replaced a text (which held a gold answer, while
        what came instead does not). ``retrievals a used one`` and ``tokens a used one`` are what
        one costs that was used. ``by`` is "method" or "dataset".
        """
        return count_funnel(self.retrievals, self.outcomes, choice("by", by, ("method", "dataset")))

    def where(self, expression: str) -> Runs:
        """The same runs on the questions of the rows for which a pandas expression over
        ``questions`` is true.

        ``runs.where("em < 1 and retrievals > 2")``; one after the other for what two methods did:
        ``runs.where("method == 'dragin' and not right").where("method == 'flare' and right")``.

        Raises ``SettingError`` for an expression that cannot be read, and where no question is
        left.
        """
        names = find_names(check_text("expression", expression))
        frame = self.outcomes if names <= {*self.outcomes} else self.questions
        rows = frame[evaluate(frame, expression)]
        if rows.empty:
            raise SettingError(f"no question matches {expression}")
        runs = Runs(self.records)
        chosen = zip(rows["dataset"], rows["method"], rows["id"], strict=True)
        keys = {}
        for (dataset, name), lines in self._keys.items():
            for key, line in lines.items():
                keys[dataset, name, line["id"]] = dataset, key
        runs._chosen = frozenset(keys[row] for row in chosen)
        runs._chosen_by = (*self._chosen_by, expression)
        runs._choosing = self._choosing
        if names & {*ANSWER_COLUMNS, *self.metrics}:
            runs._choosing |= {*rows["method"]}
        runs._finders = self._finders
        runs._causes = self._causes
        return runs

    def record(self, id: str, method: str, dataset: str | None = None) -> tuple[RunRecord, Line]:
        """The run and the prediction line of a question. Raises ``SettingError`` where there is
        none, or several.
        """
        choice("method", method, self.names)
        check_text("id", id)
        among = self.datasets if dataset is None else [check_text("dataset", dataset)]
        answered = [(name, method) for name in among if id in self._lines.get((name, method), ())]
        if len(answered) != 1:
            why = f"was not answered by {method!r}"
            if answered:
                why = "is in several data sets; name one"
            raise SettingError(f"question {id!r} {why}; ids are in .questions")
        [at] = answered
        return self._by[at], self._lines[at][id]

    def same(self, id: str, method: str, other: str, dataset: str | None = None) -> str | None:
        """The id of a question in another method's run, which may be another one; None where it
        has no answer there.
        """
        record, line = self.record(id, method, dataset)
        at = next(at for at, run in self._by.items() if run is record)
        key = next(key for key, asked in self._keys[at].items() if asked is line)
        others = self._keys.get((at[0], choice("method", other, self.names)), {})
        return others[key]["id"] if key in others else None

    # -- traces and causes -------------------------------------------------------------------------

    def trace(self, id: str, method: str, dataset: str | None = None) -> Trace:
        """The trace of an answer. Raises ``RunError`` where the run kept none."""
        record, _ = self.record(id, method, dataset)
        trace = self.kept_trace(record, id)
        if trace is None:
            raise RunError(
                f"{record.folder}: no trace of {id!r} was kept; answer the question again, with"
                " traces=True"
            )
        return trace

    def kept_trace(self, record: RunRecord, id: str) -> Trace | None:
        """A trace as the run kept it; None where it kept none, or one that is damaged, which a
        warning names.
        """
        try:
            return record.trace(id)
        except TraceFileError as error:
            if record.has_trace(id):
                warn(f"{error}: left out")
            return None

    def cause_finder(self, dataset: str) -> CauseFinder:
        if choice("data set", dataset, self.datasets) not in self._finders:
            record = next(record for at, record in self._by.items() if at[0] == dataset)
            self._finders[dataset] = CauseFinder.of(dataset, record.config)
        return self._finders[dataset]

    def cause(self, id: str, method: str, dataset: str | None = None) -> Cause | None:
        """Why an answer is wrong (``causes``); None for a right one, and without a gold answer."""
        record, line = self.record(id, method, dataset)
        at = (record.folder, id)
        if at not in self._causes:
            self._causes[at] = self._find_cause(record, id, line)
        return self._causes[at]

    def _find_cause(self, record: RunRecord, id: str, line: Line) -> Cause | None:
        if id in record.causes:
            return Cause(*record.causes[id])
        wrong = line["em"] is not None and line["em"] < _RIGHT
        if not wrong and line["ended"] != "error":
            return None
        return self.cause_finder(record.dataset).cause(line, self.kept_trace(record, id))

    def __repr__(self) -> str:
        asked = sum(map(len, self.compared("all").asked.values()))
        failures = "".join(f"; {line}" for line in self._list_failures())
        return (
            f"Runs({', '.join(self.names)} on {', '.join(self.datasets)}; {asked:,}"
            f" questions{failures})"
        )

    def _repr_html_(self) -> str:
        return self.table().to_html()


# -- questions that were chosen --------------------------------------------------------------------


def remark_selection(
    expressions: Sequence[str], choosing: Iterable[str], tested: Iterable[str]
) -> list[str]:
    """The lines below a table of the questions that ``expressions`` chose, where ``tested`` methods
    would be compared.

    A choice by the answers of the ``choosing`` methods does not measure a method: among the
    questions that it got wrong it has no exact match, whatever it is compared with.
    """
    lines = [f"only questions chosen by: {'; '.join(expressions)}"] if expressions else []
    if chosen := sorted(set(choosing) & set(tested)):
        lines.append(
            f"no test: what {' and '.join(chosen)} answered chose the questions, so a difference"
            " here says how they were chosen, not which method is better; test on all questions, or"
            " on those of a type"
        )
    return lines


def find_names(expression: str) -> set[str]:
    try:
        nodes = ast.walk(ast.parse(expression.strip(), mode="eval"))
    except SyntaxError:  # pandas accepts names between backticks
        return set(re.findall(r"\w+", expression))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def evaluate(frame: pd.DataFrame, expression: str) -> pd.Series:
    """Which rows of ``frame`` an expression is true for; a missing value counts as false."""
    try:
        mask = frame.eval(expression)
        return mask.astype("boolean").fillna(False).astype(bool)
    except pd.errors.UndefinedVariableError as error:
        choice("column", str(error).split("'")[1], frame.columns)
        raise
    except Exception as error:  # noqa: BLE001 - pandas raises whatever an expression meets
        raise SettingError(
            f"{shown(expression)} cannot be read ({shown(str(error))}); write an expression over "
            f"{', '.join(frame.columns)}, such as 'em < 1 and retrievals > 2'"
        ) from None
