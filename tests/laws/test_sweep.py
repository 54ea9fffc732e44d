"""A sweep is its single runs: each value's lines are those of the questions asked at it, with a
cache or not.
"""

from __future__ import annotations

from typing import Any

from given import Case, any_method, some
from hypothesis import assume, given
from hypothesis import strategies as st

from dragin_lab.catalog.exchanged import exchange_settings

#: What is swept over, by the name of the setting.
VALUES: dict[str, list[Any]] = {
    "threshold": [0.0, 0.1, 0.9],
    "max_new_tokens": [3, 12],
    "top_k": [1, 3],
}
TOLD = ("text", "answer", "readable", "ended", "queries", "drafts", "tokens")


@some(2)
@given(case=any_method(), draw=st.data())
def test_a_sweep_is_its_single_runs(case: Case, draw: st.DataObject) -> None:
    known = {
        key: values for key, values in VALUES.items() if case.method.settings.get(key) is not None
    }
    assume(known)
    setting = draw.draw(st.sampled_from(sorted(known)))
    lab = case.lab.replace(cache=draw.draw(st.booleans()) or None)
    swept = lab.sweep(case.questions, case.method, progress=False, **{setting: known[setting]})
    assert list(swept.values) == known[setting]
    for value, record, row in zip(
        swept.values, swept.records, swept.table.itertuples(), strict=True
    ):
        lines, alone = record.predictions, exchange_settings(case.method, **{setting: value})
        assert [line["id"] for line in lines] == [question.id for question in case.questions]
        assert row.n + row.failed == len(lines)
        for question, line in zip(case.questions, lines, strict=True):
            trace = case.lab.ask(question, alone)
            asked = trace.text, trace.answer, trace.readable, trace.ended, trace.queries
            counted = trace.counters["drafts"], trace.counters["generated"]
            assert tuple(line[key] for key in TOLD) == (*asked, *counted)
            assert (line["em"], line["retrievals"]) == (
                trace.scores["em"],
                trace.counters["retrievals"],
            )
