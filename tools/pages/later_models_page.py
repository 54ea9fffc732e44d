"""The section "Later models" of docs/paper-and-code.md, from the rows that ``later_models`` keeps.

python -m tools.pages.later_models_page
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from dragin_lab.data.presets import presets
from dragin_lab.run.intervals import bootstrap, bracket, proportion
from dragin_lab.study.comparisons import paired
from tools.pages.base import DOCS, HERE, Row, bracketed, fill_template, markdown_table, put_between

ROWS, PAGE = HERE / "later_models.json", DOCS / "paper-and-code.md"
TITLES = {"hotpotqa": "HotpotQA", "2wikimultihopqa": "2WikiMultihopQA"}
#: One θ for every model: QuCo-RAG's baselines, and the Dynamic RAG Toolbox's Llama 3.2 and Qwen 2.5.
QUCO = {"hotpotqa": 1.3, "2wikimultihopqa": 1.0}
TOOLBOX = {"hotpotqa": 1.0, "2wikimultihopqa": 1.0}
#: The ways in which the same drafts are read (``later_models.READINGS``).
READINGS = {
    "released": "`▁`, as released for the type `llama`",
    "llama3": "`▁`, and a full stop begins a word, as on Llama 3",
    "right": "`Ġ`, the right marker",
    "text": "`Ġ`, and words as text",
}


def thetas(benchmark: str) -> dict[float, str]:
    """θ -> whose it is, of the paper's Table 9, the released configurations and the later comparisons."""
    users: dict[float, list[str]] = {QUCO[benchmark]: ["QuCo-RAG"]}
    users.setdefault(TOOLBOX[benchmark], []).append("toolbox")
    for one in presets():
        if (one.method, one.dataset) == ("dragin", benchmark):
            name = f"{'Table 9' if one.source == 'paper' else 'released'}, {one.model}"
            users.setdefault(one.settings["threshold"], []).append(name)
    return {theta: "; ".join(users[theta]) for theta in sorted(users)}


def share(values: Iterable[bool]) -> str:
    """How many are true, and their share with its interval."""
    flags = [float(value) for value in values]
    if not flags:
        return "–"
    part = proportion(flags)
    return f"{sum(flags):.0f}: {part.mean:.2f} {bracket(part.low, part.high, places=2)}"


def is_garbled(query: Row) -> bool:
    """Whether a query is glued or broken (``describe_query``)."""
    return "glued" in query or "broken" in query


def fired(rows: Iterable[Row], reading: str) -> list[Row]:
    """What is kept of the queries of a reading, where it fires."""
    return [row[reading] for row in rows if "recall" in row[reading]]


def fires_table(by: Mapping[str, Sequence[Row]]) -> str:
    """Share of drafts that fire, by benchmark and θ, in the readings whose words differ."""
    shown = [name for name in READINGS if name != "text"]
    rows = [
        (TITLES[name], f"{theta:g}", users, *(share(row[r]["peak"] > theta for row in of) for r in shown))
        for name, of in by.items()
        for theta, users in thetas(name).items()
    ]
    return markdown_table(("benchmark", "θ", "whose", *(READINGS[r] for r in shown)), rows)


def queries_table(by: Mapping[str, Sequence[Row]]) -> str:
    """What is wrong with the queries, by benchmark and reading."""
    rows = []
    for name, of in by.items():
        for reading, about in READINGS.items():
            queries = fired(of, reading)
            recall = bootstrap([query["recall"] for query in queries], within=(0.0, 1.0)) if queries else None
            flags = [share(flag in query for query in queries) for flag in ("empty", "glued", "broken", "mark")]
            garbled = share(map(is_garbled, queries))
            rows.append((TITLES[name], about, len(queries), *flags[:3], garbled, flags[3], recall or "–"))
    head = ("benchmark", "read with", "queries", "empty", "glued", "broken", "garbled", "end marks", "recall@3")
    return markdown_table(head, rows)


def firing_sentences(by: Mapping[str, Sequence[Row]]) -> list[str]:
    """What the first table says."""
    sentences = []
    for name, of in by.items():
        first, last = min(thetas(name)), max(thetas(name))
        low, high = (fmean(row["right"]["peak"] > theta for row in of) for theta in (first, last))
        right, released = (median(row[reading]["peak"] for row in of) for reading in ("right", "released"))
        sentences.append(
            f"{TITLES[name]}: with the right marker {low:.0%} of the drafts fire at θ {first:g} and {high:.0%} at "
            f"θ {last:g}. The median of their highest scores is {right:.2f}. With `▁` it is {released:.2f}: the draft "
            "is one word, whose score is its mean entropy."
        )
    return sentences


def query_sentences(rows: Sequence[Row]) -> list[str]:
    """What the second table says, of all questions together."""
    released, llama3, right = (fired(rows, reading) for reading in ("released", "llama3", "right"))
    pairs = [(row["text"], row["right"]) for row in rows if "recall" in row["text"] and "recall" in row["right"]]
    other = [row["differs"] for row in rows if "recall" in row["right"]]
    empty, garbled = sum("empty" in query for query in released), sum(map(is_garbled, right))
    marked, sent = (sum(flag in query for query in right) for flag in ("mark", "mark_sent"))
    test = paired([text["recall"] for text, _ in pairs], [raw["recall"] for _, raw in pairs], scores=True)
    return [
        f"With `▁`, {empty} of {len(released)} queries are empty: the only word is the one that is flagged, and "
        "flagged words are left out.",
        f"With `▁` and words that end at full stops, {sum(map(is_garbled, llama3))} of {len(llama3)} are garbled.",
        f"With the right marker, {garbled} of {len(right)} are garbled, and {sum(other)} differ from those made of "
        "words as text: a word in the vocabulary's signs matches no content word, and is left out.",
        f"An end mark stands in {marked} of {len(right)} queries with the right marker, and in {sent} of those sent.",
        "Words as text, against the right marker alone, change recall@3 by "
        f"{bracketed(test.difference, test.low, test.high, sign=True)} (n = {test.n}).",
    ]


def write_section(rows: Sequence[Row]) -> str:
    """The whole section, from one row a question."""
    by = {name: [row for row in rows if row["benchmark"] == name] for name in TITLES}
    words = [f"`{word}`" for query in fired(rows, "right") for word in query.get("broken", ())[:1]]
    section = fill_template(
        "later_models.md.jinja",
        quco=QUCO,
        toolbox=TOOLBOX,
        counts=" and ".join(f"{len(of)} questions of {TITLES[name]}" for name, of in by.items()),
        fires=fires_table(by),
        on_firing=firing_sentences(by),
        queries=queries_table(by),
        on_queries=query_sentences(rows),
        examples=", ".join(words[:6]) or "none",
    )
    return f"{section}\n"


def keep_rows(rows: Sequence[Row]) -> None:
    """Keep the rows beside this script, and write the section."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    ROWS.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    put_between(PAGE, "later-models", write_section(rows))


if __name__ == "__main__":
    keep_rows(json.loads(ROWS.read_text(encoding="utf-8")))
