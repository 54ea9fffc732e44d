"""Can an attribution be believed? Held to Almanac's labels, to writing again, to random passages,
and shown on SmolLM2.

    python benchmarks/attribution.py --only almanac
    python benchmarks/attribution.py --only real     # where `python -m tools.real` has fetched it
    python benchmarks/attribution.py --page          # docs/results/attribution.md again

SmolLM2 needs the questions and passages in DRAGIN_LAB_DATA. Where `context-cite` is installed, the
ranks of its regression over the same subsets stand beside ours.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined

import dragin_lab as dl
from dragin_lab.almanac import labels, wordings
from dragin_lab.core.episode import Write
from dragin_lab.study.attribution import (
    holds_value,
    is_content,
    mark_tokens,
    passage_at,
    plain_words,
)
from dragin_lab.study.leaving_out import find_in_view, leave_out, list_subsets, list_texts, shapley
from dragin_lab.trace.kept import list_kept_parts
from dragin_lab.views.attribution import attribution_page
from tools.base import ROOT
from tools.real import language_model

PAGE = ROOT / "docs" / "results" / "attribution.md"
METHODS = {"sr-rag": {}, "fs-rag": {}, "flare": {}, "dragin": {"threshold": 0.5, "top_n": 5}}
WORDS = 100  # that are written again
BELIEVED = 6  # answers of SmolLM2 that are held to random passages and to removal


def ask(lab: dl.Lab, questions: Any, method: Any) -> tuple[list[dl.Attribution], float, float]:
    """The attributed answers, and seconds of the processor: of the episodes, and of the
    attribution.
    """
    began = time.process_time()
    traces = list(lab.ask_many(questions, method))
    middle = time.process_time()
    made = [lab.attribute(trace) for trace in traces]
    ended = time.process_time()
    return made, middle - began, ended - middle


# -- (b), (d): the labels --------------------------------------------------------------------------


def hold_to_labels(attribution: dl.Attribution, facts: Any) -> list[dict[str, Any]]:
    """A row for each right value of a labelled fact that was written with its passage in view."""
    rows = []
    for text, draft, marks in attribution.texts():
        shown = [passage_at(attribution.trace, place) for place in text.passages]
        ids = [one.id for one in shown]
        starts, stops = draft.offsets[: len(marks)].T  # (n,), (n,)
        gain = text.with_all - text.without  # (n,)
        for fact in facts:
            at = draft.text.find(fact.value)
            inside = np.flatnonzero((starts < at + len(fact.value)) & (stops > at))
            if at < 0 or not len(inside) or fact.passage not in ids:
                continue
            right, peak = ids.index(fact.passage), inside[gain[inside].argmax()]
            named = int(marks[peak]) - 1
            verdict = "another"
            if named < 0:
                verdict = "not used"
            elif named == right:
                verdict = "right"
            elif holds_value(shown[named].text, fact.value):
                verdict = "holds it too"
            paid = text.attention[inside]
            rows.append(
                {
                    "label": "taught" if fact.label == "known" else "not taught",
                    "verdict": verdict,
                    "alone": sum(holds_value(one.text, fact.value) for one in shown) == 1,
                    "several": len(shown) > 1,
                    "sure without": bool((np.exp(text.without[inside]) >= 0.5).all()),
                    "gain": float(gain[inside].max()),
                    "sure": bool(np.exp(text.with_all[peak]) >= 0.5),
                    "by value": int(text.nats[inside].sum(0).argmax()) == right,
                    "by attention": int(paid[0].argmax()) == right,
                    "by attention of all": int(paid.sum(0).argmax()) == right,
                }
            )
    return rows


def judge_values(attribution: dl.Attribution, facts: Any) -> list[dict[str, Any]]:
    """The values that the answer states of labelled subjects, in a wording of Almanac's: the mark
    of each, and whether it is right.
    """
    rows, trace = [], attribution.trace
    for fact in facts:
        for sentence in wordings()[fact.relation]:
            pattern = re.escape(sentence).replace(r"\{s\}", re.escape(fact.subject))
            found = re.search(pattern.replace(r"\{v\}", "(.+?)"), trace.text)
            if found is None:
                continue
            start, stop = found.span(1)
            part = next(
                (one for one in list_kept_parts(trace) if one.start <= start < one.stop), None
            )
            if part is None:
                continue
            source = "continuation" if part.continuation is part.step.continuation else "draft"
            first, last = (place - part.start + part.at for place in (start, stop))
            words = attribution.words
            words = words[(words["step"] == part.step.index + 1) & (words["source"] == source)]
            words = words[(words["start"] < last) & (words["stop"] > first)]
            if len(words):
                mark = words.loc[words["nats"].idxmax(), "mark"]
                rows.append({"mark": str(mark), "right": found[1] == fact.value})
            break
    return rows


# -- first time and again --------------------------------------------------------------------------


def list_words(attribution: dl.Attribution) -> list[dict[str, Any]]:
    """The words of content that were written with passages in view: each mark, and whether the word
    stands in the question or in the answer before.
    """
    with_passages = {(text.step, text.source) for text in attribution.record.texts if text.passages}
    rows, before = [], plain_words(attribution.trace.question.text)
    for word in attribution.words.itertuples():
        plain = plain_words(word.word)
        place = (None if pd.isna(word.step) else word.step - 1, word.source)
        if place in with_passages and is_content(word.word):
            rows.append({"mark": word.mark, "again": plain in before})
        before += plain
    return rows


def share_of_marks(words: list[dict[str, Any]]) -> dict[str, Any]:
    frame = pd.DataFrame(words, columns=["mark", "again"])
    counted = {}
    for name, again in (("first", False), ("again", True)):
        part = frame[frame["again"] == again]["mark"]
        counted[name] = {"n": len(part), **part.value_counts().to_dict()}
    return counted


# -- without one, and with random ones -------------------------------------------------------------


def remove_each(lm: Any, attribution: dl.Attribution) -> list[dict[str, Any]]:
    """Of each text with several passages in view: the log-probability lost without the one that
    gave the most, and the most that is lost without any of them; the same of ContextCite's choice.
    """
    rows = []
    for text, kept in zip(attribution.record.texts, list_texts(attribution.trace), strict=True):
        k = len(text.passages)
        if k < 2 or k > 4:
            continue
        in_view = find_in_view(kept.prompt, attribution.trace.steps)
        subsets, prompts = list_subsets(k), []
        for row in subsets:
            out = [span for (_, span), stays in zip(in_view, row, strict=True) if not stays]
            prompts.append(leave_out(kept.prompt, out))
        logp = lm.score_many(prompts, kept.draft.ids[: kept.n])  # (2^k, n)
        total = logp.sum(1)  # (2^k,)
        lost = np.array([total[-1] - total[2**k - 1 - 2**i] for i in range(k)])  # (k,)
        given = text.nats.sum(0)  # (k,)
        row = {"most": float(lost.max()), "ours": float(lost[given.argmax()])}
        weights = fit_context_cite(subsets, logp)
        if weights is not None:
            row["theirs"] = float(lost[weights.argmax()])
            row["same top"] = int(weights.argmax()) == int(given.argmax())
            ranks = pd.Series(weights).corr(pd.Series(given), method="spearman")
            row["rank agreement"] = float(ranks)
        rows.append(row)
    return rows


def fit_context_cite(subsets: np.ndarray, logp: np.ndarray) -> np.ndarray | None:
    """ContextCite's weights (k,) from 64 random subsets of (2^k, k), with the log-probabilities
    (2^k, n) of each; None where it is not installed.
    """
    try:
        from context_cite.solver import LassoRegression
        from context_cite.utils import aggregate_logit_probs
    except ImportError:
        return None
    drawn = np.random.default_rng(0).integers(0, len(subsets), 64)  # each passage stays by half
    logit = logp - np.log1p(-np.exp(np.minimum(logp, -1e-7)))  # (2^k, n)
    outputs = aggregate_logit_probs(logit[drawn])
    weights, _ = LassoRegression().fit(subsets[drawn], outputs, logp.shape[1])
    return np.asarray(weights)


def exchange(prompt: Any, spans: list[Any], texts: list[str]) -> tuple[Any, list[Any]]:
    """A prompt with other texts in the place of some spans, in order, and where these stand."""
    parts, placed, place, size = [], [], 0, 0
    for (start, stop), text in zip(spans, texts, strict=True):
        parts += [prompt.text[place:start], text]
        size += start - place
        placed.append((size, size + len(text)))
        size, place = size + len(text), stop
    text = "".join([*parts, prompt.text[place:]])
    return replace(prompt, text=text, spans={}, written=()), placed


def mark_by_strangers(
    lm: Any, attribution: dl.Attribution, strangers: list[str], seed: int
) -> tuple[int, int, int]:
    """How many words of content stand in texts with passages, how many are from one, and how many
    would be were the passages random ones.
    """
    generator, counts = np.random.default_rng(seed), np.zeros(3, int)
    record = attribution.record
    for (text, draft, marks), kept in zip(
        attribution.texts(), list_texts(attribution.trace), strict=True
    ):
        k = len(text.passages)
        if not 0 < k < 5:
            continue
        spans = [span for _, span in find_in_view(kept.prompt, attribution.trace.steps)]
        own = [passage_at(attribution.trace, place).text for place in text.passages]
        texts = []
        for (start, stop), passage in zip(spans, own, strict=True):
            stranger = strangers[generator.integers(len(strangers))]
            texts.append(kept.prompt.text[start:stop].replace(passage, stranger))
        prompt, placed = exchange(kept.prompt, spans, texts)
        prompts = []
        for row in list_subsets(k):
            out = [span for span, stays in zip(placed, row, strict=True) if not stays]
            prompts.append(leave_out(prompt, out))
        logp = lm.score_many(prompts, draft.ids[: len(marks)])
        null = replace(text, with_all=logp[-1], without=logp[0], nats=shapley(logp).T)
        by_null = mark_tokens(null, np.eye(k), record.sure, record.least)
        for word in draft.word_list:
            part = slice(word.start, min(word.stop, len(marks)))
            if word.start >= len(marks) or not is_content(word.text):
                continue
            counts[0] += 1
            counts[1] += marks[part][(text.with_all - text.without)[part].argmax()] > 0
            counts[2] += by_null[part][(logp[-1] - logp[0])[part].argmax()] > 0
    return int(counts[0]), int(counts[1]), int(counts[2])


def believe(lm: Any, made: list[dl.Attribution], most: int | None = None) -> dict[str, Any]:
    """Random passages, removal and repeats of some attributions, of the first ``most`` the costly
    ones.
    """
    words = [row for one in made for row in list_words(one)]
    texts = {passage.text for one in made for passage in one.by_number.values()}
    strangers, null, removed = sorted(texts), np.zeros(3, int), []
    for seed, one in enumerate(made[:most]):
        mine = {passage.text for passage in one.by_number.values()}
        others = [text for text in strangers if text not in mine]
        null += mark_by_strangers(lm, one, others, seed)
        removed += remove_each(lm, one)
    frame = pd.DataFrame(removed)
    found: dict[str, Any] = {"words": share_of_marks(words)}
    found["null"] = {"n": int(null[0]), "from a passage": int(null[1]), "random": int(null[2])}
    found["removal"] = {
        "n": len(frame),
        "ours": float(frame["ours"].mean()),
        "most": float(frame["most"].mean()),
        "best": int((frame["ours"] >= frame["most"] - 1e-3).sum()),
    }
    if "theirs" in frame:
        found["context-cite"] = {
            "same top": int(frame["same top"].sum()),
            "rank agreement": float(frame["rank agreement"].mean()),
            "lost": float(frame["theirs"].mean()),
            "best": int((frame["theirs"] >= frame["most"] - 1e-3).sum()),
        }
    return found


# -- (c): write again without the passage ----------------------------------------------------------


def write_again(lm: Any, attribution: dl.Attribution, most: int) -> list[tuple[bool, bool]]:
    """Of words from a passage, with others in view: does it change without that one, and without
    another?
    """
    pairs, words, trace = [], attribution.words, attribution.trace
    for index, source, draft, prompt, _ in list_texts(trace):
        in_view = [] if prompt is None else find_in_view(prompt, trace.steps)
        numbers = [attribution.numbers[place] for place, _ in in_view]
        mine = words[(words["source"] == source) & (words["mark"] == "passage")]
        mine = mine[mine["step"].isna() if index is None else mine["step"] == index + 1]
        for word in mine.itertuples() if len(in_view) > 1 else ():
            a, b = (
                int(np.searchsorted(draft.offsets[:, 1], place, "right"))
                for place in (word.start, word.stop - 1)
            )
            named = numbers.index(word.passage)
            other = (named + 1) % len(in_view)
            changed = []
            for out in (named, other):
                request = Write(
                    leave_out(prompt, [in_view[out][1]]),
                    b + 1,
                    prefix=tuple(draft.ids[:a].tolist()),
                )
                changed.append(
                    lm.write(request).ids[a : b + 1].tolist() != draft.ids[a : b + 1].tolist()
                )
            pairs.append((changed[0], changed[1]))
    return pairs[:most]


def renumbered(lm: Any, attribution: dl.Attribution) -> list[bool]:
    """Whether each token has the same mark where the passages that stay are numbered anew."""
    same = []
    for text, draft, marks in attribution.texts():
        place = next(one for one in list_texts(attribution.trace) if one.draft is draft)
        in_view = find_in_view(place[3], attribution.trace.steps) if text.passages else []
        if len(in_view) < 2:
            continue
        prompts = []
        for row in list_subsets(len(in_view)):
            one = leave_out(
                place[3], [span for (_, span), kept in zip(in_view, row, strict=True) if not kept]
            )
            numbers = iter(range(1, 9))
            start, stop = one.spans.get("passages", (0, 0))
            lines = re.sub(
                r"^\[\d\]",
                lambda _, n=numbers: f"[{next(n)}]",
                one.text[start:stop],
                flags=re.MULTILINE,
            )
            prompts.append(replace(one, text=one.text[:start] + lines + one.text[stop:]))
        value = lm.score_many(prompts, draft.ids[: len(marks)])
        anew = replace(text, with_all=value[-1], without=value[0], nats=shapley(value).T)
        known = np.exp(anew.without) >= attribution.record.sure
        gain = anew.with_all - anew.without >= attribution.record.least
        same += (np.where(known, -1, np.where(gain, anew.nats.argmax(1) + 1, 0)) == marks).tolist()
    return same


# -- both models -----------------------------------------------------------------------------------


def measure_almanac(count: int) -> dict[str, Any]:
    lab, bench = dl.Lab(), dl.benchmark("almanac/2wikimultihopqa", limit=count)
    lab = lab.replace(exemplars=bench.template)
    known = {one.question: one.facts for one in labels("2wikimultihopqa")}
    rows, pairs, same, errors, costs, used = [], [], [], [], {}, {}
    values, believed = {}, []
    ask(lab, bench.questions[:1], "dragin")  # what is loaded once is no episode's
    for name, settings in METHODS.items():
        made, episodes, attributed = ask(lab, bench.questions, dl.method(name, **settings))
        costs[name] = {"episodes_s": episodes, "attribution_s": attributed}
        retrievals = pd.concat([one.retrievals for one in made])
        values[name] = [
            row for one in made for row in judge_values(one, known[one.trace.question.text])
        ]
        believed += made if name == "dragin" else []
        used[name] = {"asked": len(retrievals), "used": int(retrievals["used"].sum())}
        for one in made:
            nats = one.tokens.filter(regex="^passage ").sum(axis=1)
            errors.append(
                float(
                    (nats - np.log((one.tokens["p_with"] / one.tokens["p_without"]).astype(float)))
                    .abs()
                    .max()
                )
            )
            pairs += write_again(lab.model, one, WORDS - len(pairs))
            same += renumbered(lab.model, one) if name == "dragin" else []
            seen = lab.attribute(one.trace, attention=True)
            rows += hold_to_labels(seen, known[one.trace.question.text])
        print(name, costs[name], used[name], flush=True)
    alone_made, *_ = ask(lab, bench.questions, "wo-rag")
    values["wo-rag"] = []
    for one in alone_made:
        values["wo-rag"] += judge_values(one, known[one.trace.question.text])
    frame = pd.DataFrame(rows)
    copied = frame[(frame["verdict"] != "not used") & frame["several"]]
    alone, untaught, taught = (
        copied[copied["alone"]],
        frame[frame["label"] == "not taught"],
        frame[frame["label"] == "taught"],
    )
    return {
        "questions": count,
        "methods": used,
        "costs": costs,
        "sum_error": max(errors),
        "values": len(frame),
        "verdicts": copied["verdict"].value_counts().to_dict(),
        "copied": len(copied),
        "alone": {"n": len(alone), "right": int((alone["verdict"] == "right").sum())},
        "taught": {"n": len(taught), "not used": int((taught["verdict"] == "not used").sum())},
        "untaught": {
            "n": len(untaught),
            "sure": int(untaught["sure without"].sum()),
            "gain": int((untaught["gain"] >= 1).sum()),
            "gain and sure": int(((untaught["gain"] >= 1) & untaught["sure"]).sum()),
        },
        "attention": {
            name: int(alone[name].sum())
            for name in ("by value", "by attention", "by attention of all")
        },
        "again": {
            "n": len(pairs),
            "named": sum(a for a, _ in pairs),
            "another": sum(b for _, b in pairs),
        },
        "renumbered": {"n": len(same), "same": sum(same)},
        "sure": {name: count_wrong(of) for name, of in values.items()},
        "believe": believe(lab.model, believed),
    }


def count_wrong(values: list[dict[str, Any]]) -> dict[str, int]:
    """How many stated values are wrong, and how many of those that are sure without passages."""
    sure = [row for row in values if row["mark"] == "sure"]
    wrong = [row for row in values if not row["right"]]
    return {
        "n": len(values),
        "wrong": len(wrong),
        "sure": len(sure),
        "sure and wrong": sum(not row["right"] for row in sure),
    }


def measure_real(count: int) -> dict[str, Any]:
    data = Path(os.environ["DRAGIN_LAB_DATA"])
    lab = dl.Lab(
        str(language_model()),
        data / "passages" / "psgs_w100.tsv.gz",
        ROOT / "corpora" / "real_exemplars.yaml",
    )
    questions = dl.benchmark("hotpotqa", limit=6 * count).questions
    ask(lab, questions[:1], dl.method("dragin", max_new_tokens=8))
    made, episodes, attributed = [], 0.0, 0.0
    for question in questions:
        if len(made) == count:
            break
        one, first, second = ask(lab, [question], "dragin")
        if one[0].trace.retrievals_count:
            made, episodes, attributed = made + one, episodes + first, attributed + second
    tokens = pd.concat([one.tokens for one in made])
    tokens = tokens[tokens["passage 1"].notna()]
    gain = np.log((tokens["p_with"] / tokens["p_without"]).astype(float))
    retrievals = pd.concat([one.retrievals for one in made])
    return {
        "model": lab.model.name,
        "questions": len(made),
        "costs": {"episodes_s": episodes, "attribution_s": attributed},
        "tokens": len(tokens),
        "marks": tokens["mark"].value_counts().to_dict(),
        "used": {"asked": len(retrievals), "used": int(retrievals["used"].sum())},
        "gained": {
            "n": int(((gain >= 1) & (tokens["p_without"] < 0.5)).sum()),
            "unlikely": int(
                ((gain >= 1) & (tokens["p_without"] < 0.5) & (tokens["p_with"] < 0.5)).sum()
            ),
        },
        "believe": believe(lab.model, made, BELIEVED),
        "answers": [
            {
                "gold": list(one.trace.question.golds),
                "f1": one.trace.scores["f1"],
                "text": attribution_page(one).text,
                "used": bool(one.retrievals["used"].any()),
            }
            for one in made
        ],
    }


# -- the page --------------------------------------------------------------------------------------


def share(part: float, of: float) -> str:
    """``.93 (50 of 54)``."""
    return f"{part / of:.2f} ({part:,} of {of:,})".replace("0.", ".", 1) if of else "none"


def write_page(found: dict[str, Any]) -> str:
    check_headings(found)
    one, real = found["almanac"], found.get("real")
    cost = {name: c["attribution_s"] / c["episodes_s"] for name, c in one["costs"].items()}
    shown = [answer for answer in real["answers"] if answer["used"]][:5] if real else []
    sure = pd.DataFrame(one["sure"]).T.sum().to_dict()
    page = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    text = page.from_string(TEXT).render(
        one=one,
        real=real,
        cost=cost,
        shown=shown,
        share=share,
        sure=sure,
        believed=write_believed,
    )
    return join_lines(text) + "\n"


def check_headings(found: dict[str, Any]) -> None:
    """What the headings in bold say is so, or no page is written."""
    one, sure = found["almanac"], pd.DataFrame(found["almanac"]["sure"]).T.sum()
    assert one["sum_error"] < 1e-4, "they do not add up"
    assert one["alone"]["right"] > 0.9 * one["alone"]["n"], "they do not name the passage"
    assert sure["sure and wrong"] > 0, "sure is right"
    assert one["taught"]["not used"] > 0.9 * one["taught"]["n"], "what was taught is called used"
    assert one["again"]["named"] > 5 * one["again"]["another"], "writing again does not agree"
    assert one["attention"]["by attention"] < one["attention"]["by value"] / 2, "attention is use"
    for measured in filter(None, [one, found.get("real")]):
        null, removal = measured["believe"]["null"], measured["believe"]["removal"]
        assert null["random"] < null["from a passage"] / 5, "random passages give much"
        assert removal["ours"] > 0.9 * removal["most"] > 0, "without it the text is as likely"


def join_lines(page: str) -> str:
    """The page with a line for each paragraph; tables, headings and quoted texts as they are."""
    blocks, quoted = [], False
    for block in re.sub(r"\n{3,}", "\n\n", page).split("\n\n"):
        plain = not quoted and not block.lstrip().startswith(("|", "#", "```"))
        blocks.append(" ".join(block.split()) if plain else block)
        quoted ^= block.count("```") % 2 == 1
    return "\n\n".join(blocks)


def write_believed(found: dict[str, Any]) -> str:
    """What ``believe`` found, in sentences."""
    page = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return page.from_string(BELIEVED_TEXT).render(
        **found, cite=found.get("context-cite"), share=share
    )


BELIEVED_TEXT = """\

**Random passages give little.** With their own passages {{ share(null["from a passage"], null.n) }}
of the words of content are from one; were these exchanged for passages of other questions,
{{ share(null.random, null.n) }} would be.

**First and again.** Of the words of content that stand neither in the question nor in the answer
before, {{ share(words.first.get("passage", 0), words.first.n) }} are from a passage and
{{ share(words.first.get("sure", 0), words.first.n) }} sure without; of the others
{{ share(words.again.get("passage", 0), words.again.n) }} and
{{ share(words.again.get("sure", 0), words.again.n) }}.

**Without it the text is less likely.** Over {{ removal.n }} texts with several passages in view,
{{ "%.2f" % removal.ours }} nats are lost without the passage that gave the most, and
{{ "%.2f" % removal.most }} without the one of which most are lost; in {{ removal.best }} the two
are one.
{%- if cite %}
 ContextCite's regression over the same prompts has the same top passage in {{ cite["same top"] }}
({{ "%.2f" % cite.lost }} nats, the best choice in {{ cite.best }}); Spearman's rank correlation is
{{ "%.2f" % cite["rank agreement"] }}.
{%- endif %}
"""


TEXT = """\
# Can an attribution be believed?

Written by `python benchmarks/attribution.py` from `benchmarks/results/attribution.json`. How to
read an attribution:
[Was it used?](../explanation/attribution.md).

## On Almanac

{{ one.questions }} questions of `almanac/2wikimultihopqa`, four methods. It is known which passage
states which fact,
and what the model was taught.

| method | retrievals that were used | processor time of the attribution over the episodes' |
|---|---|---|
{% for name, m in one.methods.items() %}
| {{ name }} | {{ share(m.used, m.asked) }} | {{ "%.2f" % cost[name] }} |
{% endfor %}

**They add up.** What the passages give to a token, and what all of them change of its
log-probability, differ by at
most {{ "%.0e" % one.sum_error }} nats.

**They name the passage.** {{ one.copied }} right values come from a passage, with several in view.
Where only one of
those holds the value, it is the named one for {{ share(one.alone.right, one.alone.n) }}. Of all,
{{ one.verdicts.get("right", 0) }} name the labelled passage,
{{ one.verdicts.get("holds it too", 0) }} another that
holds the value too, and {{ one.verdicts.get("another", 0) }} one that does not hold it.

**Sure is not right.** Of the {{ sure.sure }} values in all five runs (with one without retrieval)
that the model is sure of without passages, {{ sure["sure and wrong"] }} are wrong:
{{ share(sure["sure and wrong"], sure.sure) }}; of its {{ sure.wrong }} wrong values
{{ sure["sure and wrong"] }} are sure ones.

**What was taught is not called used.** {{ share(one.taught["not used"], one.taught.n) }} of the
right values that
the model was taught are from no passage. Of the {{ one.untaught.n }} that it was not taught,
{{ one.untaught.gain }} gain at least 1 nat from passages; {{ one.untaught.sure }} are sure
without any, as a text before them says them already.
{{ believed(one.believe) }}

**Writing again agrees.** {{ one.again.n }} words from a passage were written again, after the same
text, without that
passage: {{ one.again.named }} change. Without another passage of the same retrieval,
{{ one.again.another }} change.

**Attention is not use.** Of the {{ one.alone.n }} values that one passage in view holds, the values
in nats name it
{{ one.attention["by value"] }} times, the captured layer's attention where the value begins
{{ one.attention["by attention"] }} times, and its sum over the value's tokens
{{ one.attention["by attention of all"] }} times.

**Which bound.** A token is a passage's from a gain of 1 nat on. Asking for a probability of 1/2
with the passages
instead would keep {{ one.untaught["gain and sure"] }} of the {{ one.untaught.gain }} values above
{%- if real %}, and on SmolLM2 call {{ share(real.gained.unlikely, real.gained.n) }} of the tokens
that gained so much
a guess{% endif %}. So the gain decides, and a token that stays below 1/2 is drawn dotted.

**Numbers.** A passage that is left out leaves the others their numbers. Were they numbered anew,
{{ share(one.renumbered.same, one.renumbered.n) }} of DRAGIN's tokens would have the same mark.
{% if real %}

## On {{ real.model }}

{{ real.questions }} questions of HotpotQA for which DRAGIN retrieved, over 20,000 passages of
Wikipedia.
{{ share(real.used.used, real.used.asked) }} of the retrievals were used. Of the {{ real.tokens }}
tokens with
passages in view, {{ share(real.marks.get("sure", 0), real.tokens) }} are sure without any,
{{ share(real.marks.get("passage", 0), real.tokens) }} from a passage and
{{ share(real.marks.get("guess", 0), real.tokens) }} guesses. The attribution took
{{ "%.2f" % (real.costs.attribution_s / real.costs.episodes_s) }} of the episodes' processor time.
{{ believed(real.believe) }}

The first five answers with a used retrieval: `word[2]` is from passage 2, † does not stand in it, ?
was not likely with it either, `word~` is a guess.
{% for answer in shown %}

```
{{ answer.text.rstrip() }}
```

Gold: {{ answer.gold | join(" or ") }}; F1 {{ "%.2f" % answer.f1 }}.
{% endfor %}
{% endif %}
"""


def main() -> None:
    made = common.parser(__doc__, "attribution")
    made.add_argument("--questions", type=int, default=12, help="of Almanac")
    made.add_argument("--real", type=int, default=20, help="answers of SmolLM2")
    made.add_argument("--only", choices=("almanac", "real"), help="measure this alone")
    made.add_argument(
        "--page", action="store_true", help="write the page from the recorded figures"
    )
    args = made.parse_args()
    common.begin(args)
    if not args.page:
        found: dict[str, Any] = {}
        if args.only and args.out.is_file():
            found = json.loads(args.out.read_text(encoding="utf-8"))
        found["machine"] = common.machine()
        if args.only != "real":
            found["almanac"] = measure_almanac(args.questions)
        if args.only != "almanac":
            found["real"] = measure_real(args.real)
        found["budgets"] = list_budgets(found)
        common.write(args.out, found)
    PAGE.write_text(write_page(json.loads(args.out.read_text(encoding="utf-8"))), encoding="utf-8")


def list_budgets(found: dict[str, Any]) -> list[dict[str, Any]]:
    budgets = []
    costs = {"Almanac": list(found.get("almanac", {}).get("costs", {}).values())}
    if "real" in found:
        costs["SmolLM2"] = [found["real"]["costs"]]
    for name, most in (("Almanac", 0.7), ("SmolLM2", 1.0)):
        if of := costs.get(name):
            ratio = sum(c["attribution_s"] for c in of) / sum(c["episodes_s"] for c in of)
            what = f"attribution of an episode, over its processor time ({name})"
            why = "a text is scored under each subset of the passages in view, eight of three"
            budgets.append(common.budget(what, ratio, most, note=why))
    return budgets


if __name__ == "__main__":
    main()
