"""Can an attribution be believed? Held to Almanac's labels and to writing again, and shown on
SmolLM2.

    python benchmarks/attribution.py            # Almanac, and SmolLM2 where `python -m tools.real`
    has fetched it python benchmarks/attribution.py --page     # docs/results/attribution.md again,
    from the recorded figures

SmolLM2 needs the questions and passages in DRAGIN_LAB_DATA.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined

import dragin_lab as dl
from dragin_lab.almanac import labels
from dragin_lab.core.episode import Write
from dragin_lab.study.attribution import holds_value, passage_at
from dragin_lab.study.leaving_out import find_in_view, leave_out, list_subsets, list_texts, shapley
from dragin_lab.views.attribution import attribution_page
from tools.base import ROOT
from tools.real import language_model

PAGE = ROOT / "docs" / "results" / "attribution.md"
METHODS = {"sr-rag": {}, "fs-rag": {}, "flare": {}, "dragin": {"threshold": 0.5, "top_n": 5}}
WORDS = 100  # that are written again
#: What a reader saw in an answer of SmolLM2, by the first digits of the SHA-256 of its text with
#: the marks.
SEEN = {
    "f40080aeeb757b30": (
        "the name is read from the right passage, and the question is not answered."
    ),
    "7393cdb70a0d902a": "read from the passage about another boxer; the right one gave nothing.",
    "94c8f1315864cd9f": (
        "the model runs in a circle; that a word of it is from a passage means nothing."
    ),
    "337c5f1e0eef67e5": (
        "both dates are read from a passage about somebody else, and the answer contradicts them."
    ),
    "69482067eafd7b0d": "nearly all of it is a guess; the right answer is not read from a passage.",
}


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
    for text, draft, _ in attribution.texts():
        shown = [passage_at(attribution.trace, place) for place in text.passages]
        step = None if text.step is None else text.step + 1
        mine = attribution.tokens[(attribution.tokens["source"] == text.source)]
        mine = mine[mine["step"].isna() if step is None else mine["step"] == step].reset_index(
            drop=True
        )
        starts, stops = draft.offsets[: len(mine)].T
        for fact in facts:
            at, ids = draft.text.find(fact.value), [one.id for one in shown]
            inside = (
                np.flatnonzero((starts < at + len(fact.value)) & (stops > at)) if at >= 0 else ()
            )
            if not len(inside) or fact.passage not in ids:
                continue
            tokens, right = mine.iloc[inside], ids.index(fact.passage)
            gain = np.log((tokens["p_with"] / tokens["p_without"]).astype(float).to_numpy())
            peak, first = int(gain.argmax()), int(inside[0])
            named = tokens["passage"].iloc[peak]
            verdict = (
                "not used" if pd.isna(named) else "right" if named - 1 == right else "holds it too"
            )
            if verdict == "holds it too" and not holds_value(
                shown[int(named) - 1].text, fact.value
            ):
                verdict = "another"
            value = text.nats[inside].sum(0)  # (k,)
            rows.append(
                {
                    "label": "taught" if fact.label == "known" else "not taught",
                    "verdict": verdict,
                    "alone": sum(holds_value(one.text, fact.value) for one in shown) == 1,
                    "several": len(shown) > 1,
                    "known": bool((tokens["p_without"] >= 0.5).all()),
                    "gain": float(gain.max()),
                    "sure": bool(tokens["p_with"].iloc[peak] >= 0.5),
                    "by value": int(value.argmax()) == right,
                    "by attention": int(text.attention[first].argmax()) == right,
                    "by attention of all": int(text.attention[inside].sum(0).argmax()) == right,
                }
            )
    return rows


# -- (c): write again without the passage ----------------------------------------------------------


def write_again(lm: Any, attribution: dl.Attribution, most: int) -> list[tuple[bool, bool]]:
    """Of words from a passage, with others in view: does it change without that one, and without
    another?
    """
    pairs, words, trace = [], attribution.words, attribution.trace
    for index, source, draft, prompt, _ in list_texts(trace):
        in_view = [] if prompt is None else find_in_view(prompt, trace.steps)
        mine = words[(words["source"] == source) & (words["mark"] == "passage")]
        mine = mine[mine["step"].isna() if index is None else mine["step"] == index + 1]
        for word in mine.itertuples() if len(in_view) > 1 else ():
            a, b = (
                int(np.searchsorted(draft.offsets[:, 1], place, "right"))
                for place in (word.start, word.stop - 1)
            )
            named, other = word.passage - 1, word.passage % len(in_view)
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
        place = next(one for one in list_texts(attribution.trace) if one[2] is draft)
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
        known = np.exp(anew.without) >= attribution.record.known
        gain = anew.with_all - anew.without >= attribution.record.least
        same += (np.where(known, -1, np.where(gain, anew.nats.argmax(1) + 1, 0)) == marks).tolist()
    return same


# -- both models -----------------------------------------------------------------------------------


def measure_almanac(count: int) -> dict[str, Any]:
    lab, bench = dl.Lab(), dl.benchmark("almanac/2wikimultihopqa", limit=count)
    lab = lab.replace(exemplars=bench.template)
    known = {one.question: one.facts for one in labels("2wikimultihopqa")}
    rows, pairs, same, errors, costs, used = [], [], [], [], {}, {}
    ask(lab, bench.questions[:1], "dragin")  # what is loaded once is no episode's
    for name, settings in METHODS.items():
        made, episodes, attributed = ask(lab, bench.questions, dl.method(name, **settings))
        costs[name] = {"episodes_s": episodes, "attribution_s": attributed}
        retrievals = pd.concat([one.retrievals for one in made])
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
            "known": int(untaught["known"].sum()),
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
    }


def measure_real(count: int) -> dict[str, Any]:
    data = Path(os.environ["DRAGIN_LAB_DATA"])
    lab = dl.Lab(
        str(language_model()),
        data / "passages" / "psgs_w100.tsv.gz",
        ROOT / "corpora" / "real_exemplars.yaml",
    )
    questions = dl.benchmark("hotpotqa", limit=4 * count).questions
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
    one, real = found["almanac"], found.get("real")
    cost = {name: c["attribution_s"] / c["episodes_s"] for name, c in one["costs"].items()}
    shown = [answer for answer in real["answers"] if answer["used"]][:5] if real else []
    for answer in shown:
        answer["seen"] = SEEN.get(sha256(answer["text"].encode()).hexdigest()[:16], "")
    page = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined).from_string(
        TEXT
    )
    return page.render(one=one, real=real, cost=cost, shown=shown, share=share) + "\n"


TEXT = """\
# Can an attribution be believed?

Written by `python benchmarks/attribution.py` from `benchmarks/results/attribution.json`. How to
read an attribution:
[Was it used?](../explanation/attribution.md).

## On Almanac

{{ one.questions }} questions of `almanac/2wikimultihopqa`, four methods. It is known which passage
states which fact,
and what the model was taught.

| method | retrievals that gave a word | processor time of the attribution over the episodes' |
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

**What was taught is not called used.** {{ share(one.taught["not used"], one.taught.n) }} of the
right values that
the model was taught are from no passage. Of the {{ one.untaught.n }} that it was not taught,
{{ one.untaught.gain }} gain at least 1 nat from passages; {{ one.untaught.known }} are known
without any.

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
{{ share(real.used.used, real.used.asked) }} of the retrievals gave a word. Of the {{ real.tokens }}
tokens with
passages in view, {{ share(real.marks.get("known", 0), real.tokens) }} are known,
{{ share(real.marks.get("passage", 0), real.tokens) }} from a passage and
{{ share(real.marks.get("guess", 0), real.tokens) }} guesses. The attribution took
{{ "%.2f" % (real.costs.attribution_s / real.costs.episodes_s) }} of the episodes' processor time.

The first five answers in which a passage gave a word: `word[2]` is from passage 2, `word~` is a
guess.
{% for answer in shown %}

```
{{ answer.text.rstrip() }}
```

Gold: {{ answer.gold | join(" or ") }}; F1 {{ "%.2f" % answer.f1 }}.
{% if answer.seen %}
By eye: {{ answer.seen }}
{% endif %}
{% endfor %}
{% endif %}
"""


def main() -> None:
    made = common.parser(__doc__, "attribution")
    made.add_argument("--questions", type=int, default=12, help="of Almanac")
    made.add_argument("--real", type=int, default=8, help="answers of SmolLM2; 0 leaves it out")
    made.add_argument(
        "--page", action="store_true", help="write the page from the recorded figures"
    )
    args = made.parse_args()
    common.begin(args)
    if not args.page:
        found: dict[str, Any] = {
            "machine": common.machine(),
            "almanac": measure_almanac(args.questions),
        }
        if args.real:
            found["real"] = measure_real(args.real)
        costs = found["almanac"]["costs"]
        ratio = sum(c["attribution_s"] for c in costs.values()) / sum(
            c["episodes_s"] for c in costs.values()
        )
        found["budgets"] = [
            common.budget(
                "attribution of an episode, over its processor time (Almanac)", ratio, 3.0
            )
        ]
        common.write(args.out, found)
    PAGE.write_text(write_page(json.loads(args.out.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
