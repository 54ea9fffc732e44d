"""Does a trigger know, on a real model? Single facts asked of SmolLM2 without passages, and docs/real-model.md.

    python -m tools.pages.real_model               ask everything, then write the page; resumed where it was stopped
    python -m tools.pages.real_model --part known  ask one part only: known, 2wiki, strategyqa or almanac

Each question has one fact for its answer. The model answers in a sentence, greedily, and the answer is right where it
holds a gold string. A trigger's score of an answer is what it would hold against its threshold: its highest over the
answer's tokens, or the sentence's where it judges sentences. Those that ask a retriever ask for the 20,000 real
passages of ``DRAGIN_LAB_DATA``. Rows are kept in ``runs/real``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from string import Template
from typing import Any

import numpy as np
import spacy
from scipy.stats import spearmanr

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Prompt, SoFar, Write
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.core.stops import NextExample
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.data import datasets
from dragin_lab.study import needs
from tools import real
from tools.pages.base import (
    DOCS,
    HERE,
    RUNS,
    Row,
    bracketed,
    kept_rows,
    markdown_table,
    parser,
    rounded,
    say,
    text_between,
)
from tools.pages.single_facts import PARTS, SENTENCES, YES_OR_NO, Fact
from tools.pages.support import TrainingCounts, consult, score_consulting

OUTPUT = RUNS / "real"
NEW_TOKENS = 32
ALMANAC_LABELS = 50  # of each of its four benchmarks
SILENT = -1e9  # the score of an answer in which a trigger has nothing to judge, such as no name
CONSULTING = ("corpus", "search-risk")  # the triggers that ask a retriever

#: What a table calls the parts.
TITLES = {
    "known": "known facts",
    "2wiki": "2Wiki's triples",
    "strategyqa": "StrategyQA",
    "almanac": "Almanac, own view",
}
SHOWN = 17  # a kind of fact with fewer questions has no row of its own
#: What Almanac's page says of these is compared with what SmolLM2 says.
PAIRS = (
    ("rind", "entropy"),
    ("rind-reference", "entropy"),
    ("entropy", "margin"),
    ("entropy", "attention"),
    ("capitalised", "entropy"),
    ("probability", "probability-sentence"),
    ("entropy-trend", "entropy"),
    ("renyi", "entropy"),
    ("self-certainty", "entropy"),
    ("rauq", "perplexity"),
    ("corpus", "entropy"),
    ("search-risk", "random"),
)


class Asked:
    """SmolLM2 and the English pipeline, asking and scoring."""

    def __init__(self) -> None:
        self.lm = dl.LanguageModel.load(real.language_model())
        self.pipeline = load_pipeline(spacy.load(real.ENGLISH.folder))
        self.retriever = dl.BM25(dl.Corpus.load(datasets.data_folder() / "passages" / "psgs_w100.tsv.gz"))

    def ask(self, fact: Fact) -> Row:
        """One answer: its text, whether it is right, and every trigger's highest score over its tokens."""
        shown = YES_OR_NO if fact.part == "strategyqa" else SENTENCES
        examples = "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in shown)
        prompt = Prompt(f"{examples}Question: {fact.question}\nAnswer:", {})
        continuation = self.lm.generate(Write(prompt, NEW_TOKENS, NextExample(("\n",)), **needs.needed(self.lm)))
        line = continuation.text.split("\n")[0]
        first = next(iter(self.pipeline.spans(line)), (0, len(line)))[1]
        tokens = needs.tokens_of(continuation, 0, first)
        scores = needs.score_tokens(self.lm, continuation, self.pipeline, more=self._consult)
        answer = {name: float(values[tokens].max()) if len(tokens) else 0.0 for name, values in scores.items()}
        sentence = Draft(continuation.beginning(int(tokens[-1]) + 1 if len(tokens) else 0), self.pipeline)
        for trigger in needs.score_triggers(self.pipeline, continuation):
            if trigger.unit != "word" and len(tokens):
                answer[trigger.name] = float(trigger.score_unit(sentence))
        return {
            "kind": fact.kind,
            "question": fact.question,
            "golds": fact.golds,
            "answer": line[:first].strip(),
            "right": fact.is_right(line[:first]),
            "scores": answer,
            "measured": record_measured(sentence),
        }

    def _consult(self, draft: Draft) -> dict[str, np.ndarray]:
        """The scores (n,) of the triggers that ask a retriever."""
        asking = {name: TRIGGERS.make(name) for name in CONSULTING}
        return {name: one.score_tokens(consult(one, draft, self.retriever)) for name, one in asking.items()}


def record_measured(draft: Draft) -> Row:
    """What was measured on a draft's tokens, as plain data: enough for triggers that need nothing else."""
    arrays = {name: getattr(draft, name).tolist() for name in ("offsets", "entropy", "logprob", "received")}
    return {"text": draft.text, "alternative_probs": draft.alternative_probs[:, :2].tolist()} | arrays


def restore_draft(measured: Row, pipeline: Pipeline) -> Draft:
    """The draft of ``record_measured``; its ids are not kept."""
    text, offsets, entropy, logprob = (measured[name] for name in ("text", "offsets", "entropy", "logprob"))
    received, alternatives = (np.array(measured[name]) for name in ("received", "alternative_probs"))
    written = SoFar([0] * len(offsets), text, offsets, entropy, logprob, received, alternative_probs=alternatives)
    return Draft(written, pipeline)


def almanac_rows() -> list[Row]:
    """The facts of Almanac's gold reasoning on its own model, scored as docs/almanac.md does."""
    lm, pipeline, rows = dl.LanguageModel.load(None), load_pipeline(), []
    retriever, training = dl.BM25(dl.Corpus.load()), TrainingCounts.load()
    more = partial(score_consulting, retriever=retriever, training=training)
    for name in datasets.BENCHMARKS:
        for labelled in almanac.labels(name, "test")[:ALMANAC_LABELS]:
            prompt = datasets.template(f"almanac/{name}")
            facts, _ = needs.forced_items(lm, labelled, prompt, pipeline, more=more)
            rows += [{"question": i.qid, "right": not i.missing, "scores": dict(i.own)} for i in facts]
    return rows


def read_part(part: str, output: Path, limit: int | None = None) -> list[Row]:
    """The rows of a part, computed where they are not there yet."""
    if part == "almanac":
        path = output / "almanac.json"
        if not path.exists():
            path.write_text(json.dumps(almanac_rows()), encoding="utf-8")
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
        return rows
    asked = cache(Asked)

    def work(fact: Fact) -> Row:
        return asked().ask(fact)

    return kept_rows(output / f"{part}.jsonl", list(PARTS[part]())[:limit], work)


# -- the page ---------------------------------------------------------------------------------------------------------


def items_of(rows: Sequence[Row]) -> list[needs.Item]:
    """The rows as what a trigger should fire on (wrong answers) or leave alone (right ones)."""
    return [
        needs.Item(
            f"{number}-{row['question']}", "", not row["right"], {k: max(v, SILENT) for k, v in row["scores"].items()}
        )
        for number, row in enumerate(rows)
    ]


def areas_of(rows: Sequence[Row]) -> dict[str, needs.Row]:
    """ROC area with its interval and average precision of every trigger that scores tokens."""
    return {row.trigger: row for row in needs.when_table(items_of(rows), {}) if row.trigger not in needs.CLOCKS}


def count_table(parts: Mapping[str, Sequence[Row]]) -> str:
    """How many answers are right, by part and kind of fact."""
    rows: list[tuple[Any, ...]] = []
    for part in PARTS:
        kinds = Counter(row["kind"] for row in parts[part])
        right = Counter(row["kind"] for row in parts[part] if row["right"])
        rows.append((f"**{TITLES[part]}**", f"**{sum(right.values())}**", f"**{sum(kinds.values())}**"))
        if len(kinds) > 1:
            shown = [kind for kind, count in kinds.most_common() if count >= SHOWN]
            rows += [(kind, right[kind], kinds[kind]) for kind in shown]
            if rest := [kind for kind in kinds if kind not in shown]:
                rows.append((f"{len(rest)} others", sum(right[k] for k in rest), sum(kinds[k] for k in rest)))
    return markdown_table(("facts", "right", "asked"), rows)


def area_table(areas: Mapping[str, Mapping[str, needs.Row]]) -> str:
    """One row a trigger, the best on single facts first."""
    columns = (*PARTS, "almanac")
    order = sorted(areas["facts"], key=lambda name: -areas["facts"][name].area)
    rows = []
    for name in order:
        row = areas["facts"][name]
        each = [bracketed(r.area, r.low, r.high) if (r := areas[part].get(name)) else "–" for part in columns]
        rows.append((f"`{name}`", bracketed(row.area, row.low, row.high), rounded(row.average_precision), *each))
    head = ("trigger", "both sets of facts", "average precision", *(TITLES[part] for part in columns))
    return markdown_table(head, rows)


def rank_correlation(first: Mapping[str, needs.Row], second: Mapping[str, needs.Row]) -> tuple[float, int]:
    """Spearman's correlation of two parts' areas over the triggers that both have, and how many these are."""
    names = [name for name in first if name in second]
    areas = [[part[name].area for name in names] for part in (first, second)]
    return float(spearmanr(*areas).statistic), len(names)


def write_page(path: Path, parts: Mapping[str, Sequence[Row]]) -> None:
    """Write docs/real-model.md; every sentence with a figure is written here."""
    both = [*parts["known"], *parts["2wiki"]]
    areas = {part: areas_of(rows) for part, rows in parts.items()} | {"facts": areas_of(both)}
    chance = sum(not row["right"] for row in both) / len(both)
    correlation, shared = rank_correlation(areas["facts"], areas["almanac"])
    page = Template((HERE / "real_model.template.md").read_text(encoding="utf-8")).substitute(
        counts=count_table(parts),
        areas=area_table(areas),
        chance=rounded(chance),
        labels=ALMANAC_LABELS,
        right_words=f"{mean_words(both, right=True):.1f}",
        wrong_words=f"{mean_words(both, right=False):.1f}",
        on_strategy=", ".join(f"`{name}`" for name, row in areas["strategyqa"].items() if row.low > 0.5) or "none",
        lessons="\n".join(f"- {lesson}" for lesson in list_lessons(areas, parts["known"])),
        findings="\n".join(f"- {finding}" for finding in find_differences(areas)),
        correlation=f"{correlation:.2f}",
        shared=shared,
        known=f"{rank_correlation(areas['known'], areas['almanac'])[0]:.2f}",
        wrong=examples_of(parts["known"], "entropy", right=False),
        unsure=examples_of(parts["known"], "entropy", right=True),
        benchmarks=text_between(path, "benchmarks"),
    )
    path.write_text(page, encoding="utf-8")


def list_lessons(areas: Mapping[str, Mapping[str, needs.Row]], known: Sequence[Row]) -> list[str]:
    """What a reader of the paper cannot know from it, each with its figures; ``known`` are the known facts alone."""

    def area(name: str, part: str = "facts") -> str:
        row = areas[part][name]
        return bracketed(row.area, row.low, row.high)

    def order(first: str, second: str) -> str:
        a, b = areas["facts"][first], areas["facts"][second]
        return "ahead of" if a.low > b.high else "behind" if a.high < b.low else "not clearly apart from"

    entropy = {right: [row["scores"]["entropy"] for row in known if row["right"] is right] for right in (True, False)}
    sure = fmean(value < np.median(entropy[True]) for value in entropy[False])
    yes_no = areas["strategyqa"]
    above = [name for name, row in yes_no.items() if row.low > 0.5]
    return [
        f"**Probability against RIND.** `probability` ({area('probability')}) is {order('probability', 'rind')} `rind` "
        f"({area('rind')}) and {order('probability', 'entropy')} `entropy` ({area('entropy')}). It needs no attention "
        "and no whole distribution.",
        f"**Attention beside entropy.** `rind` is {order('rind', 'entropy')} `entropy`, which is one of its factors. "
        f"Attention alone has {area('attention')}. The released code's RIND ({area('rind-reference')}) is "
        f"{order('rind-reference', 'entropy')} `entropy`.",
        f"**Yes or no.** On StrategyQA `rind` has {area('rind', 'strategyqa')}, and {len(above)} of {len(yes_no)} "
        "triggers are above 0.5 by their interval. After an answer of one word hardly a token is left that could "
        'attend to it, and "no" is a stop word.',
        f"**Sure and wrong.** {sure:.0%} of the wrong answers to known facts have a lower entropy than half of the "
        "right ones. A threshold that is low enough for them retrieves for half or more of what the model knows.",
    ]


def find_differences(areas: Mapping[str, Mapping[str, needs.Row]]) -> list[str]:
    """What Almanac's table says of pairs of triggers, and whether a real model says the same."""
    findings = []
    for first, second in PAIRS:
        sides = []
        for part, where in (("almanac", "on Almanac"), ("facts", "on SmolLM2")):
            a, b = areas[part][first], areas[part][second]
            apart = a.low > b.high or b.low > a.high
            word = "ahead of" if a.area > b.area else "behind"
            said = word if apart else "not clearly apart from"
            sides.append((said, f"{where} `{first}` is {said} `{second}` ({a.area:.3f} and {b.area:.3f})"))
        holds = "holds" if sides[0][0] == sides[1][0] else "does not hold"
        findings.append(f"**{holds.capitalize()}**: {sides[0][1]}, {sides[1][1]}.")
    return findings


def mean_words(rows: Sequence[Row], *, right: bool) -> float:
    """How many words the right or the wrong answers have on average."""
    return fmean(len(row["answer"].split()) for row in rows if row["right"] is right)


def examples_of(rows: Sequence[Row], trigger: str, *, right: bool, most: int = 6) -> str:
    """The right answers with the highest scores, or the wrong ones with the lowest: where a trigger is mistaken."""
    chosen = sorted((row for row in rows if row["right"] is right), key=lambda row: row["scores"][trigger])
    chosen = chosen[::-1][:most] if right else chosen[:most]
    head = ("question", "answer", "gold", trigger)
    return markdown_table(
        head, [(r["question"], r["answer"], " or ".join(r["golds"]), f"{r['scores'][trigger]:.2f}") for r in chosen]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--part", choices=(*PARTS, "almanac"), help="compute one part only")
    options.add_argument("--limit", type=int, help="so many questions of each part")
    options.add_argument("--output", type=Path, default=OUTPUT)
    given = options.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    parts = {}
    for part in [given.part] if given.part else [*PARTS, "almanac"]:
        parts[part] = read_part(part, given.output, given.limit)
        say(f"{part}: {sum(row['right'] for row in parts[part])} of {len(parts[part])} right")
    if not given.part:
        write_page(DOCS / "real-model.md", parts)


if __name__ == "__main__":
    main()
