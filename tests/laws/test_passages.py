"""No line of a passage's row is lost: each of its fields is in id, title or text, or a warning
names it.
"""

from __future__ import annotations

import warnings

from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.retrieval.corpus import Corpus

line = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
value = st.lists(st.one_of(line, line.map(lambda one: f'"{one}"')), min_size=1, max_size=4).map(
    "\n".join
)
names = ["id", "_id", "title", "text", "contents", "abstract", "metadata"]
rows = st.dictionaries(st.sampled_from(names), value, min_size=1).filter(
    lambda row: {"text", "contents"} & {*row}
)


def squeezed(text: str) -> str:
    return "".join(text.replace('"', "").split())


@given(row=rows)
def test_every_field_of_a_row_is_in_its_passage_or_named(row: dict[str, str]) -> None:
    usable = {
        name: f"{name} {text}" if name in ("id", "_id", "text", "contents") else text
        for name, text in row.items()
    }
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        (passage,) = Corpus.load([usable])
    named = " ".join(str(one.message) for one in said)
    whole = squeezed(passage.id + passage.title + passage.text)
    lost = [
        name
        for name, text in usable.items()
        if any(squeezed(line) not in whole for line in text.splitlines())
    ]
    assert [name for name in lost if name not in named] == []
