"""Finished runs as one object: questions as a table, means with intervals, paired comparisons, questions by outcome.

``Runs.load("runs/bench")`` takes every run directory below a folder, of any benchmark and of files of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.parts import choice
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.files import not_saved, write_whole
from dragin_lab.run.again import Rerun
from dragin_lab.run.lines import TIMING, Line, readable
from dragin_lab.run.notes import read_notes, read_saved, write_notes
from dragin_lab.run.rundir import TIMINGS, RunError, RunRecord, find_runs, read_lines
from dragin_lab.study.causes import CAUSES, Cause, Judge
from dragin_lab.study.comparisons import paired
from dragin_lab.study.naming import names_of_runs
from dragin_lab.study.sentence import OUTCOMES, flags_of, sentence
from dragin_lab.study.tables.cells import Cell, Row, mean_cell, measured
from dragin_lab.study.tables.shown import Table
from dragin_lab.study.versus import Comparison

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.core.trace import Trace

#: What a table has of each data set: heading, entry of a prediction line, decimals.
MEASURES = (("EM", "em", 3), ("F1", "f1", 3), ("retrievals", "retrievals", 2), ("pieces", "pieces", 1))
_SAVED = ("csv", "parquet", "tex", "md", "txt")
_WRONG = 1.0  # an exact match below this is wrong

Key = tuple[str, str]  # data set and question id


class Runs:
    """Runs of any benchmarks, by method. ``names`` are what the methods are called, ``datasets`` what they answered.

    Args:
        records: run directories as they were read.
        labels: facts of questions (``almanac.facts``), where they are not Almanac's, which are found by themselves.
    """

    def __init__(self, records: Iterable[RunRecord], *, labels: Iterable[Labelled] = ()) -> None:
        self.records = list(records)
        if not self.records:
            raise SettingError("there are no runs; give folders that 'dragin-lab run --output' wrote")
        self._labels = list(labels)
        self._called = names_of_runs([record.config for record in self.records])
        self._chosen: frozenset[Key] | None = None
        self._last: tuple[Any, Trace | None] = (None, None)
        self._by: dict[tuple[str, str], RunRecord] = {}
        for dataset, name, record in self._each():
            if (other := self._by.setdefault((dataset, name), record)) is not record:
                raise SettingError(f"{other.folder} and {record.folder} are of the same settings; give one of the two")

    @classmethod
    def load(cls, paths: str | Path | Iterable[str | Path], *, labels: Iterable[Labelled] = ()) -> Runs:
        """Every run at or below some folders. Raises ``RunError`` for a path without one, and for a damaged run."""
        return cls(find_runs(paths), labels=labels)

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The methods, in the order of their folders, with as many settings as tell them apart."""
        return tuple(dict.fromkeys(self._called))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets, in the order of their folders."""
        return tuple(dict.fromkeys(dataset for dataset, _, _ in self._each()))

    def _each(self) -> Iterator[tuple[str, str, RunRecord]]:
        for record, name in zip(self.records, self._called, strict=True):
            yield str(record.config["dataset"]["name"]), name, record

    def lines(self, dataset: str, name: str) -> dict[str, Line]:
        """The lines of a method by question id; none where it has not answered the data set."""
        if (dataset, name) not in self._by:
            return {}
        known = self._every[dataset, name]
        return {qid: x for qid, x in known.items() if self._chosen is None or (dataset, qid) in self._chosen}

    def run_of(self, dataset: str, name: str) -> RunRecord:
        """The run directory of a method on a data set."""
        return self._by[dataset, name]

    @cached_property
    def _every(self) -> dict[tuple[str, str], dict[str, Line]]:
        return {at: {line["qid"]: line for line in record.predictions} for at, record in self._by.items()}

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """``questions`` without causes, types and notes: what needs no trace, and is there at once."""
        import pandas as pd

        rows = []
        for dataset, name, record in self._each():
            seconds = read_lines(record.folder / TIMINGS, TIMING, record.config["format"])[0]
            for line in self.lines(dataset, name).values():
                scored = line["em"] is not None
                rows.append(
                    {
                        "dataset": dataset, "qid": line["qid"], "method": name, "question": line["question"],
                        "gold": " | ".join(line["gold"]), "answer": line["answer"],
                        "right": line["em"] >= _WRONG if scored else None,
                        **{key: line[key] for key in ("em", "f1", "retrievals", "pieces")},
                        "seconds": seconds[line["qid"]]["seconds"] if line["qid"] in seconds else None,
                        "ended": line["ended"], "readable": readable(line),
                    }
                )  # fmt: skip
        if not rows:
            raise SettingError("no question has an answer yet; complete the run, or take another selection")
        frame = pd.DataFrame(rows)
        return frame.astype({"right": "boolean", "em": float, "f1": float, "seconds": float})

    @cached_property
    def questions(self) -> pd.DataFrame:
        """One row per question and method (pandas.DataFrame).

        dataset, qid, method, question, gold, answer, right (missing without a gold answer), em, f1, retrievals, pieces,
        seconds, ended, readable; then cause and why (of wrong answers, ``causes``), type (where labels say it), mark
        and note (``mark``). Wrong answers are looked up in their traces, which takes some milliseconds each.
        """
        frame = self.outcomes.copy()
        judged = [self.cause(row.qid, row.method, row.dataset) for row in frame.itertuples()]
        frame["cause"] = [None if one is None else one.kind for one in judged]
        frame["why"] = [None if one is None else one.why for one in judged]
        labelled = {d: self.judge(d).labels for d in self.datasets}
        types = [labelled[row.dataset].get(row.qid) for row in frame.itertuples()]
        frame["type"] = [None if one is None else one.type for one in types]
        for part in ("mark", "note"):
            frame[part] = [self.notes.get((r.dataset, r.qid), {}).get(part) or None for r in frame.itertuples()]
        return frame

    # -- tables -------------------------------------------------------------------------------------------------------

    def table(self, *, compare: str | None = None) -> Table:
        """One row per method: exact match, F1, retrievals and pieces a question with 95 % intervals, for each data set.

        ``unreadable`` counts the answers that could not be read from the text. ``compare`` names a method that the
        others are tested against on the same questions (``comparisons.paired``).
        """
        base = None if compare is None else self._method(compare)
        alone = len(self.datasets) == 1  # the title names it
        columns, cells = [], {name: list[Cell]() for name in self.names}
        for dataset in self.datasets:
            known = {name: self.lines(dataset, name) for name in cells}
            scored = any(line["em"] is not None for lines in known.values() for line in lines.values())
            for heading, key, places in MEASURES[0 if scored else 2 :]:
                columns.append(("" if alone else dataset, heading))
                values = {name: measured(lines, key) for name, lines in known.items()}
                for name, own in values.items():
                    cells[name].append(mean_cell(own, values.get(base or "") if name != base else None, places))
            columns.append(("" if alone else dataset, "unreadable"))
            for name, lines in known.items():
                count = sum(not readable(line) for line in lines.values())
                cells[name].append(Cell(setting=f"{count} of {len(lines)}") if lines else Cell())
        rows = [Row((self._remarked(name),), tuple(of)) for name, of in cells.items()]
        sets = ", ".join(self.datasets) if len(self.datasets) < 4 else f"{len(self.datasets)} data sets"
        title, about = f"{sets}: means per question", self._about(base)
        return Table(0, title, ("method",), tuple(columns), rows, about, compared_with=base or "")

    def _remarked(self, name: str) -> str:
        records = [record for _, n, record in self._each() if n == name]
        asked = sum(record.config["dataset"]["questions"] for record in records)
        done = sum(len(record.predictions) for record in records)
        failed = sum(len(record.failed) for record in records)
        small = sum("window" in line for record in records for line in record.predictions)
        said = [f"{done} of {asked}"] * (done < asked) + [f"{failed} failed"] * (failed > 0)
        said += [f"window too small for {small}"] * (small > 0)
        return name + (f" ({', '.join(said)})" if said else "")

    def _about(self, base: str | None) -> list[str]:
        counts = sorted({len(self.lines(*at)) for at in self._by})
        n = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
        lines = [f"n = {n} question{'' if n == '1' else 's'}; brackets: 95 % bootstrap intervals over the questions"]
        rules = {record.config["template"].get("answer_rule") for record in self.records}
        if "strategyqa" in rules:
            lines.append("unreadable answers to yes-or-no questions count as no, as in the released code")
        if base is not None:
            lines.append(
                f"− {base}: difference to that row on the same questions, with the p value of a two-sided test (EM: "
                "McNemar, exact; else by permutation), not corrected for how many there are"
            )
        return lines

    def compare(self, a: str, b: str, *, causes: bool = True) -> Comparison:
        """Method ``a`` against method ``b``, on all data sets together; without ``causes`` no trace is read."""
        a, b = self._method(a), self._method(b)
        frame = self.outcomes
        frame = frame[frame["right"].notna() & (frame["ended"] != "error")]
        first, second = (
            frame[frame["method"] == name].set_index(["dataset", "qid"])[["em", "f1"]] for name in (a, b)
        )  # fmt: skip
        both = first.index.intersection(second.index)
        if not len(both):
            raise SettingError(f"{a} and {b} have no question with a gold answer in common; run them on the same ones")
        first, second = first.loc[both], second.loc[both]
        right = {a: first["em"] >= _WRONG, b: second["em"] >= _WRONG}
        leads: dict[str, dict[str, int]] = {}
        for name, other in ((a, b), (b, a)):
            alone = list(both[right[name] & ~right[other]]) if causes else []
            kinds = [cause.kind for d, qid in alone if (cause := self.cause(qid, other, d)) is not None]
            leads[name] = {kind: kinds.count(kind) for kind in CAUSES if kind in kinds}
        won, lost = int((right[a] & ~right[b]).sum()), int((right[b] & ~right[a]).sum())
        em, f1 = (paired(first[key].to_numpy(), second[key].to_numpy()) for key in ("em", "f1"))
        left_out = len(frame[frame["method"].isin([a, b])].drop_duplicates(["dataset", "qid"])) - len(both)
        return Comparison(a, b, em, f1, won, lost, len(both) - won - lost, leads, left_out)

    @cached_property
    def causes(self) -> pd.DataFrame:
        """How many answers of each method are wrong by each cause (pandas.DataFrame): one row per cause."""
        wrong = self.questions.dropna(subset="cause")
        counted = wrong.groupby(["cause", "method"]).size().unstack(fill_value=0)
        return (
            counted.reindex([kind for kind in CAUSES if kind in counted.index], columns=list(self.names))
            .fillna(0)
            .astype(int)
        )

    # -- questions ----------------------------------------------------------------------------------------------------

    def where(self, chosen: str | pd.Series) -> Runs:
        """The same runs on some of their questions.

        ``chosen`` is a sentence about methods (``"dragin wrong and flare right"``; ``OUTCOMES`` and the causes, with
        and, or, not and brackets), an expression over ``questions`` (``"retrievals > 2 and method == 'dragin'"``), or a
        mask over its rows. A question is taken where one of its rows is.

        Raises ``SettingError`` for what cannot be read, and where no question is left.
        """
        if isinstance(chosen, str):
            said = sentence(chosen, self.names, (*OUTCOMES, *CAUSES), self._flags)
            keys = self._keys_of_expression(chosen) if said is None else said
        else:
            frame = self.outcomes
            if len(chosen) != len(frame):
                raise SettingError(
                    f"a mask of {len(chosen)} rows does not go with {len(frame)}; make it from .questions"
                )
            rows = frame[chosen.fillna(False).to_numpy(dtype=bool)]
            keys = set(zip(rows["dataset"], rows["qid"], strict=True))
        if not keys:
            raise SettingError(f"no question matches {chosen if isinstance(chosen, str) else 'the mask'}")
        return self._only(keys)

    def _only(self, keys: Iterable[Key]) -> Runs:
        found = Runs(self.records, labels=self._labels)
        found._chosen = frozenset(keys)
        found.__dict__["_judges"] = self._judges
        return found

    def _flags(self, name: str, word: str) -> pd.Series:
        return flags_of(self.questions if word in CAUSES else self.outcomes, name, word)

    def _keys_of_expression(self, text: str) -> set[Key]:
        try:
            rows = self.questions.query(text)
        except Exception as error:  # noqa: BLE001 - pandas raises whatever an expression meets
            raise SettingError(
                f"{text!r} cannot be read ({error}); methods are {', '.join(self.names)}, what can be said of one is "
                f"{', '.join(OUTCOMES)} or a cause; columns are those of .questions"
            ) from None
        return set(zip(rows["dataset"], rows["qid"], strict=True))

    def _method(self, name: str) -> str:
        return choice("method", name, self.names)

    def record(self, qid: str, method: str, dataset: str | None = None) -> tuple[RunRecord, Line]:
        """The run and the prediction line of a question. Raises ``SettingError`` where there is none, or several."""
        at = [(d, self._method(method)) for d in self.datasets if dataset in (None, d)]
        found = [key for key in at if qid in self._every.get(key, ())]
        if len(found) != 1:
            what = "is in several data sets; say which" if found else f"was not answered by {method}"
            raise SettingError(f"question {qid!r} {what}; ids are in .questions")
        return self._by[found[0]], self._every[found[0]][qid]

    # -- traces and causes --------------------------------------------------------------------------------------------

    def trace(self, qid: str, method: str, dataset: str | None = None) -> Trace:
        """The trace of an answer: as it was kept, else made again with the recorded settings, which is said.

        Raises ``RunError`` where the model or the passages are not those of the run any more.
        """
        record, line = self.record(qid, method, dataset)
        return self.kept_trace(record, qid) or self._rerun(record).trace(line)

    def kept_trace(self, record: RunRecord, qid: str) -> Trace | None:
        """A trace as the run kept it; None where it kept none. The last one read is cached."""
        at = (record.folder, qid)
        if self._last[0] != at:
            try:
                self._last = (at, record.trace(qid))
            except TraceFileError:
                self._last = (at, None)
        return self._last[1]

    def _rerun(self, record: RunRecord) -> Rerun:
        return self._reruns.setdefault(record.folder, Rerun(record, self._reruns.values()))

    @cached_property
    def _reruns(self) -> dict[Path, Rerun]:
        return {}

    @cached_property
    def _judges(self) -> dict[str, Judge]:
        return {}

    def judge(self, dataset: str) -> Judge:
        """What judges the wrong answers of a data set."""
        if dataset not in self._judges:
            record = next(record for d, _, record in self._each() if d == dataset)
            self._judges[dataset] = Judge.of(dataset, record.config, self._labels)
        return self._judges[dataset]

    def cause(self, qid: str, method: str, dataset: str | None = None) -> Cause | None:
        """Why an answer is wrong (``causes``); None for a right one, and without a gold answer."""
        found = self._causes.get((dataset, qid, method))
        if found is None:
            record, line = self.record(qid, method, dataset)
            found = self._causes[dataset, qid, method] = self._judged(record, line)
        return found[0]

    @cached_property
    def _causes(self) -> dict[tuple[str | None, str, str], tuple[Cause | None]]:
        return {}

    def _judged(self, record: RunRecord, line: Line) -> tuple[Cause | None]:
        if line["em"] == 1.0 or (line["em"] is None and line["ended"] != "error"):
            return (None,)
        trace = self.kept_trace(record, line["qid"])
        return (self.judge(str(record.config["dataset"]["name"])).cause(line, trace),)

    # -- notes --------------------------------------------------------------------------------------------------------

    @cached_property
    def notes(self) -> dict[Key, dict[str, Any]]:
        """What was marked and noted on questions, as the run directories keep it."""
        found: dict[Key, dict[str, Any]] = {}
        for dataset, _, record in self._each():
            found |= {(dataset, qid): one for qid, one in read_notes(record.folder).items()}
        return found

    def mark(self, qid: str, note: str | None = None, *, mark: bool = True, dataset: str | None = None) -> None:
        """Mark a question, and write a note on it, in the folders of its runs. ``mark=False`` takes the mark away."""
        asked = [(d, n) for (d, n), lines in self._every.items() if dataset in (None, d) and qid in lines]
        folders = [(d, self._by[d, n].folder) for d, n in asked]
        if not folders:
            raise SettingError(f"no run has a question {qid!r}; ids are in .questions")
        for d, folder in folders:
            told = {"mark": mark, "note": self.notes.get((d, qid), {}).get("note", "") if note is None else note}
            write_notes(folder, {qid: told})
            self.notes[d, qid] = told
        self.__dict__.pop("questions", None)

    def add_notes(self, path: str | Path) -> int:
        """Put the notes that an explorer's page saved into the run directories; how many there are.

        Raises ``RunError`` for a file that is not one, ``SettingError`` for a question that no run has.
        """
        told = read_saved(path)
        for dataset, qid, mark, note in told:
            self.mark(qid, note, mark=mark, dataset=dataset)
        return len(told)

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, compare: str | None = None) -> Path:
        """Write ``questions`` (.csv, .parquet) or the table (.tex, .md, .txt), by the name's ending; return the path.

        Raises ``SettingError`` for another ending, ``RunError`` where the file cannot be written.
        """
        target = Path(path).expanduser()
        kind = target.suffix.removeprefix(".").lower()
        if kind not in _SAVED:
            raise SettingError(f"{path}: a name ends in one of {', '.join(f'.{one}' for one in _SAVED)}")
        forms = {"tex": "latex", "md": "markdown", "txt": "text"}
        write: dict[str, Callable[[], bytes]] = {
            "csv": lambda: self.questions.to_csv(index=False).encode(),
            "parquet": lambda: self.questions.to_parquet(index=False),
        }
        data = write[kind]() if kind in write else (self.table(compare=compare).show(forms[kind]) + "\n").encode()
        try:
            write_whole(target, data)
        except OSError as error:
            raise RunError(not_saved(target, error)) from error
        return target

    def __repr__(self) -> str:
        asked = len({(row.dataset, row.qid) for row in self.outcomes.itertuples()})
        return f"Runs({', '.join(self.names)} on {', '.join(self.datasets)}; {asked:,} questions)"

    def _repr_markdown_(self) -> str:
        return self.table().show("markdown")
