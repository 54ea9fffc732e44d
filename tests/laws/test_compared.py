"""A comparison is over the same questions: n and what is missing are what was asked, whatever is
compared.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from given import some
from hypothesis import given
from hypothesis import strategies as st
from run_folders import change_line, read_config, write_config, write_run

import dragin_lab as dl

#: What methods answered of six questions: right, wrong, failed (None), or not reached.
Drawn = dict[str, dict[str, list[float | None]]]
answers = st.lists(st.sampled_from([1.0, 0.0, None]), min_size=0, max_size=6)
methods = st.dictionaries(st.sampled_from(["dragin", "flare", "sr-rag"]), answers, min_size=1)
data_sets = st.dictionaries(st.sampled_from(["mine", "yours"]), methods, min_size=1)


def load(root: Path, drawn: Drawn) -> dl.Runs:
    for dataset, by_method in drawn.items():
        for method, em in by_method.items():
            folder = write_run(root, method, dataset, em, asked=6)
            for at in range(len(em)):
                change_line(folder, at, question=f"Who made {at}?")
    return dl.Runs.load(root)


@some(10)
@given(data_sets)
def test_a_comparison_is_over_the_same_questions(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = load(Path(folder), drawn)
        compared, table = runs.compared(), runs.table(compare=runs.names[0])
        assert repr(runs)
        for dataset in runs.datasets:
            asked = {
                key for at, lines in compared.every.items() if at[0] == dataset for key in lines
            }
            sound = [
                {key for key, line in lines.items() if line["ended"] != "error"}
                for at, lines in compared.every.items()
                if at[0] == dataset
            ]
            shared = set.intersection(*filter(None, sound)) if any(sound) else set()
            for name in runs.names:
                n = len(compared.lines((dataset, name)))
                assert n in (0, len(shared))
                if n:
                    mean = compared.intervals[(dataset, name), "em"]
                    assert mean.n == n
                    said = f"{len(asked) - n} of {len(asked)} questions"
                    assert any(line.startswith(said) for line in table.about) == (n < len(asked))
        figure = runs.plot()
        counts = {name: len(lines) for name, lines in compared.pooled.items() if lines}
        assert len({*counts.values()}) <= 1
        drawn_at = {
            one.name: one.y[0] for one in figure.data if one.name in runs.names and len(one.y)
        }
        for name, lines in compared.pooled.items():
            if lines:
                assert math.isclose(
                    drawn_at[name], np.mean([line["em"] for line in lines.values()]), abs_tol=1e-9
                )


@some(5)
@given(data_sets, st.data())
def test_what_a_run_is_called_does_not_change_its_numbers(
    drawn: Drawn, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        load(Path(folder), drawn)
        before = dl.Runs.load(folder)
        every = sorted(Path(folder).glob("*/*"))
        chosen = data.draw(st.sampled_from(every))
        config = read_config(chosen)
        write_config(chosen, config | {"dataset": config["dataset"] | {"name": "renamed"}})
        after = dl.Runs.load(folder)
        assert [len(one) for one in before.compared().common.values()] == [
            len(one) for one in after.compared().common.values()
        ]
