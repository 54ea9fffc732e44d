"""When was a retrieval needed, and did the trigger fire there? On Almanac, where labels say it.

    lab, labels = dl.Lab(), dl.almanac.labels("2wikimultihopqa", limit=8)
    traces = [lab.ask(one.question) for one in labels]
    rows = pd.concat(find_needs(trace, one) for trace, one in zip(traces, labels))
    rate_retrievals(rows)

A retrieval is needed where the text has to state a fact that the model cannot know, while no
passage in the prompt states it. It was made where the episode searched after the fact before, and
before the value was written. Behind a wrong value, or a wording that Almanac does not have, nobody
knows.
"""

from __future__ import annotations

import re

import pandas as pd

import dragin_lab as dl
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.trace.kept import list_arrivals


def find_needs(trace: dl.Trace, labels: Labelled) -> pd.DataFrame:
    """A row for each fact that an answer states, in order, up to the first wrong one: whether a
    retrieval was needed for it and made, whether its passage was found, and whether it is right.
    """
    rows, since = [], 0
    for fact in labels.facts:
        span = find_value(trace.text, fact, since)
        if span is None:
            break
        start, end = span
        before = [step for place, step in list_arrivals(trace) if place < since]
        made = [step for place, step in list_arrivals(trace) if since <= place <= start]
        in_view = {passage.id for step in before[-1:] for passage in step.passages}
        found = {passage.id for step in made for passage in step.passages}
        row = {"fact": f"{fact.relation} of {fact.subject}", "value": trace.text[start:end]}
        row["needed"] = fact.missing and fact.passage not in in_view
        row["retrieved"] = len(made) > 0
        row["found"] = fact.passage in found
        row["right"] = row["value"] == fact.value
        rows.append(row)
        if not row["right"]:
            break
        since = end
    return pd.DataFrame(rows, columns=["fact", "value", "needed", "retrieved", "found", "right"])


def find_value(text: str, fact: Fact, since: int = 0) -> tuple[int, int] | None:
    """The characters of the value in the first sentence from ``since`` on that states the fact."""
    value = r"\d+" if fact.value.isdigit() else r"[A-Z][^.?!]*?"
    spans = []
    for relation, wordings in dl.almanac.wordings().items():
        if relation.split()[-1] != fact.relation:  # "film country" is a country
            continue
        for wording in wordings:
            before, after = wording.replace("{s}", fact.subject).split("{v}")
            head = r"\s+".join(map(re.escape, before.split()))
            pattern = re.compile(rf"(?i:{head})\s+({value})(?={re.escape(after)})")
            if match := pattern.search(text, since):
                spans.append(match.span(1))
    # of several wordings the most specific: "was born in the town of" before "was born in the"
    return min(spans, key=lambda span: (span[1], -span[0]), default=None)


def rate_retrievals(rows: pd.DataFrame) -> pd.Series:
    """How many facts needed a retrieval; how many of these got one (recall); and how many of those
    that got one needed it (precision).
    """
    both = int((rows["needed"] & rows["retrieved"]).sum())
    needed, retrieved = int(rows["needed"].sum()), int(rows["retrieved"].sum())
    recall = both / needed if needed else float("nan")
    precision = both / retrieved if retrieved else float("nan")
    return pd.Series({"needed": needed, "recall": recall, "precision": precision})
