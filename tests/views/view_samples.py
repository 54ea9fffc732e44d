"""Traces for the views: a real DRAGIN episode, retold, and traces in every state; and a reader for what views make."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
from factories import make_continuation, make_prompt

from dragin_lab.trace.trace import Decision, Draft, Passage, Prompt, Query, Question, Step, Trace, Words

ASKED = "When was the city where the director of film Gewair Lantern was born founded?"
FOUND = (
    Passage(
        "a54",
        "Gewair Lantern",
        "Gewair Lantern (film) Gewair Lantern is a drama film of 1976. It was made in Thokklailkoia and directed by "
        "Graizond Loththaimpan. It received mixed reviews from critics.",
        21.37,
    ),
    Passage(
        "a114",
        "Graizond Loththaimpan",
        "Graizond Loththaimpan Graizond Loththaimpan (13 May 1963 - 19 December 2002) was a politician. The father of "
        "Graizond Loththaimpan was Deathgrex Loththaimpan. Graizond Loththaimpan was born in the city of "
        "Ceardeldrial. The mother of Graizond Loththaimpan was Ra Chundrondpa.",
        17.9,
    ),
    Passage(
        "a49",
        "Grondnimliath Lantern",
        "Grondnimliath Lantern (film) Grondnimliath Lantern is a thriller film of 1960. It was made in Cungondhuland "
        "and directed by Harlom Tolesklaix.",
        9.52,
    ),
)
FIRST = (
    "The film Gewair Lantern was directed by Graizond Loththaimpan. Graizond Loththaimpan was born in the city of "
    "Bealtha. Bealtha was founded in the year 1466. So the answer is 1466."
)
FIRST_ATTENTION = (
    "1.0 .596 .77 .255 .275 .31 .259 .126 .535 .129 .135 .197 .151 .172 .229 .26 .216 .635 .326 .324 .056 .134 .19 "
    ".352 .822 .094 .044 .065 .307 .769"
)
FIRST_ENTROPY = (
    ".001 .004 .51 .296 .001 .005 .009 2.876 .148 .574 .143 .014 .034 .071 .001 .022 .004 4.056 .152 .003 .002 .006 "
    ".001 .004 1.122 .001 .001 .002 .001 .382"
)
SECOND = "Gewair Lantern was founded in the year 1466. So the answer is 1466."
SECOND_ATTENTION = "1.702 .285 .464 .148 .237 .273 .373 .89 .133 .074 .089 .265 .898"
SECOND_ENTROPY = ".536 3.053 .002 .004 .008 .002 .005 1.122 .001 .001 .002 .001 .347"
THIRD = "So the answer is 1466."
THIRD_ATTENTION = "1.0 .538 .402 .361 1.441"
THIRD_ENTROPY = ".001 .001 .002 .001 .347"
STOP = frozenset(["the", "was", "by", "in", "of", "so", "is"])


def numbers(text: str) -> np.ndarray:
    return np.array([float(v) for v in text.split()])


def split(text: str, size: int = 4) -> list[tuple[int, int]]:
    """Character spans of made-up tokens: every word with the space before it, cut every ``size`` letters."""
    spans, start = [], 0
    for i in range(1, len(text) + 1):
        if i == len(text) or text[i] == " " or i - start >= size + (text[start] == " ") or text[i] in ".?":
            spans.append((start, i))
            start = i
    return spans


def make(text: str, spans: list[tuple[int, int]] | None = None, *, eos: bool = False, seed: int = 0) -> Draft:
    """A continuation of this text with made-up but fixed figures."""
    spans = split(text) if spans is None else spans
    made = make_continuation(make_prompt(), "x " * len(spans), attention=False, ended=eos, seed=seed)
    return replace(
        made,
        pieces=tuple(text[a:b].replace(" ", "▁") for a, b in spans) + ("</s>",) * eos,
        text=text,
        raw_text=text + "</s>" * eos,
        offsets=np.array([*spans, *[(len(text), len(text))] * eos], np.int32).reshape(-1, 2),
        received=made.received.clip(0.01, 0.6),
        alternative_tokens=tuple((text[a:b], " Bel", "ai") for a, b in spans) + (("</s>", " Bel", "ai"),) * eos,
    )


def words_of(made: Draft, attention: np.ndarray, entropy: np.ndarray, theta: float = 1.2) -> Words:
    """Words split at spaces, scored sentence by sentence; the first sentence with a score above θ keeps its hits."""
    starts = [i for i, p in enumerate(made.pieces) if i == 0 or p.startswith("▁")]
    spans = np.array(list(zip(starts, [*starts[1:], len(made)], strict=True)), np.int32).reshape(-1, 2)
    text = tuple("".join(made.pieces[a:b]).replace("▁", "") for a, b in spans)
    ends = np.cumsum([t.rstrip("</s>").endswith(".") for t in text])
    sentence = np.concatenate([[0], ends[:-1]]).astype(np.int32) if text else np.zeros(0, np.int32)
    score = np.zeros(len(text))
    for s in np.unique(sentence):
        inside = sentence == s
        score[inside] = attention[inside] / attention[inside].sum() * entropy[inside] * inside.sum()
    stop = np.array([t.lower() in STOP for t in text], bool)
    over = score > theta
    fired = sentence[over].min() if over.any() else -1
    measured = [values.astype(np.float32) for values in (attention, entropy)]
    hit = over & (sentence == fired) & ~stop
    return Words(text, spans, sentence, *measured, stop, score.astype(np.float32), hit)


def almanac_trace(variant: str = "reference") -> Trace:
    """Two retrievals and an end. The paper variant is the first retrieval alone, resumed in the next step."""
    theta = 1.2
    asked = "city director film Gewair Lantern born founded? directed Graizond born"
    weights = numbers(".012 .061 .122 .034 .187 .143 .052 .02 .041 .233 .095").astype(np.float32)
    chosen = np.array([False] + [True] * 10)
    query = Query(asked, asked, ("<s>", *asked.split()), weights, chosen)
    trace = Trace(
        question=Question("q0", ASKED, ("1466",)),
        method={"name": "dragin", "variant": variant, "when": "rind", "what": "qfs", "measure": "RIND score"}
        | {"threshold": theta, "top_n": 25, "n": 16, "max_new_tokens": 64, "top_k": 3, "scale": None},
        provenance={
            "model": {"id": "almanac-small", "dtype": "float32", "device": "cpu", "weights": "sha256:9f2c41aa"},
            "retriever": {"kind": "BM25", "k1": 1.2, "b": 0.75, "corpus": "400 passages", "fingerprint": "5d0e77"},
            "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
            "seed": 0,
        },
        seconds=0.84,
    )
    answer = ""
    rounds = (
        (FIRST, FIRST_ATTENTION, FIRST_ENTROPY, "Graizond Loththaimpan was born in the city of Gewair."),
        (SECOND, SECOND_ATTENTION, SECOND_ENTROPY, "Gewair Lantern was founded in the year 1466."),
        (THIRD, THIRD_ATTENTION, THIRD_ENTROPY, ""),
    )
    for index, (text, attention, entropy, resumed) in enumerate(rounds):
        if variant == "paper" and index:
            break
        draft = make(text, eos=True, seed=index)
        words = words_of(draft, numbers(attention), numbers(entropy), theta)
        step = Step(index, make_prompt(answer), draft, words, seconds={"draft": 0.12, "attend": 0.02})
        if resumed:
            worst = int(np.argmax(np.where(words.hit, words.score, -1)))
            start = int(draft.offsets[words.spans[worst, 0], 0])
            cut = start if variant == "paper" else text.rfind(". ", 0, start) + 2
            cut = max(cut, 0) if variant == "paper" or ". " in text[:start] else 0
            kept = text[:cut].strip()
            made = make(resumed + " It stands on the river.", seed=10 + index)
            reason = f"'{words.text[worst]}' scores {words.score[worst]:.2f} > θ {theta}"
            step.decision = Decision(True, reason, cut, int(words.spans[worst, 0]), int(words.sentence[worst]))
            step.query, step.passages = query, FOUND
            step.seconds["search"] = 0.004
            if variant == "reference":
                step.passages_prompt, step.continuation = make_prompt(f"{answer} {kept}".strip(), FOUND), made
                step.continuation_kept = len(resumed)
            else:
                resumed = ""
            step.kept = f"{kept} {resumed}".strip()
            step.discarded = text[cut:]
        else:
            step.decision = Decision(False, f"no word scores above θ {theta}; the highest is '1466.</s>' at 0.67")
            step.kept = text
        answer = f"{answer} {step.kept}".strip()
        step.answer = answer
        trace.steps.append(step)
    if variant == "paper":
        going = make(
            " Graizond Loththaimpan. He was born in Gewair, founded in 1466. So the answer is 1466.", eos=True, seed=5
        )
        w = len([p for p in going.pieces if p.startswith("▁")])
        rng = np.random.default_rng(4)
        words = words_of(going, rng.beta(1, 5, w), rng.gamma(0.5, 0.6, w), 99.0)
        step = Step(1, make_prompt(answer, FOUND), going, words, Decision(False, "no word scores above θ 1.2"))
        step.kept = going.text
        step.answer = answer = answer + going.text
        trace.steps.append(step)
    trace.steps[0].notes.append("re-encoded text gives other ids than were generated, from token 17 on")
    trace.text = answer + "</s>" if variant == "reference" else answer
    trace.answer, trace.ended = "1466", "answered"
    trace.scores = {"em": 1.0, "f1": 1.0, "precision": 1.0, "recall": 1.0}
    return trace


def baseline_trace(name: str) -> Trace:
    """A method that searches first and judges nothing (``fl-rag``, ``fs-rag``, ``sr-rag``), or never (``wo-rag``)."""
    trace = Trace(Question("q1", ASKED, ("1388",)), {"name": name, "variant": "reference", "top_k": 3, "n": 16})
    if name == "wo-rag":
        made = make(FIRST, eos=True)
        step = Step(
            0, make_prompt(""), made, decision=Decision(False, "never"), kept=made.raw_text, answer=made.raw_text
        )
        trace.steps.append(step)
    else:
        chunks = [FIRST] if name == "sr-rag" else [s.strip() + "." for s in FIRST.split(". ")]
        for i, chunk in enumerate(chunks):
            asked = ASKED if i == 0 else chunks[i - 1]
            step = Step(i, decision=Decision(True, "before every sentence"), query=Query(asked, asked), passages=FOUND)
            step.passages_prompt, step.continuation = make_prompt(trace.text, FOUND), make(chunk, seed=i)
            step.kept, step.continuation_kept = chunk, len(chunk)
            trace.text = step.answer = f"{trace.text} {chunk}".strip()
            trace.steps.append(step)
    trace.text = trace.steps[-1].answer
    trace.answer, trace.ended, trace.scores = "1466", "length", {"em": 0.0, "f1": 0.0}
    return trace


def judged_whole(unit: str, peaks: tuple[float, ...]) -> Trace:
    """``almanac_trace`` by a trigger that compares each "sentence", or the "draft", with θ."""
    trace = almanac_trace()
    trace.method |= {"when": "mine", "measure": "entropy", "unit": unit}
    trace.steps[0].decision = replace(trace.steps[0].decision, peaks=peaks)
    return trace


def long_trace(tokens: int, per_draft: int = 60) -> Trace:
    """A paper-variant trace that made about this many tokens, all judged, every fifth draft with a hit."""
    trace = Trace(
        Question("q2", ASKED, ("1466",)),
        {"name": "dragin", "variant": "paper", "when": "rind", "measure": "RIND score", "threshold": 1.2},
    )
    text = (FIRST + " ") * (per_draft // 25 + 2)
    spans = split(text)[:per_draft]
    text = text[: spans[-1][1]]
    for index in range(tokens // per_draft):
        made = make(text, spans, seed=index)
        w = sum(i == 0 or p.startswith("▁") for i, p in enumerate(made.pieces))
        rng = np.random.default_rng(index)
        words = words_of(made, rng.beta(1, 4, w), rng.gamma(0.5, 1, w), 2.5 if index % 5 == 0 else 99.0)
        step = Step(index, make_prompt(trace.text[-300:]), made, words, Decision(False, "no word scores above θ 1.2"))
        step.kept = text
        trace.text = step.answer = f"{trace.text} {text.strip()}".strip()
        trace.steps.append(step)
    trace.ended = "length"
    return trace


# -- every state, and a reader -----------------------------------------------------------------------------------------

VOID = {"meta", "br", "link", "img"}
BASELINES = ("wo-rag", "sr-rag", "fs-rag", "fl-rag")


class Reader(HTMLParser):
    """Checks that elements close in order, and collects tags, attributes and the text that a person can read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.skipping = 0
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        hidden = tag == "pre" and ("class", "alt") in attrs
        self.skipping += bool(self.skipping) or tag == "style" or hidden

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.skipping = max(0, self.skipping - 1)

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.text += data

    def parts(self) -> list[str]:
        return [attrs["data-part"] for _, attrs in self.tags if "data-part" in attrs]


def hostile_trace() -> Trace:
    run = "document.title = 'x'"
    bad = f'<script>{run}</script> & <img src=https://evil.example/a.png onerror="{run}"> "quoted" \x1b[31m \ud800'
    made = make(bad, seed=1)
    made.alternative_tokens = tuple((bad, "</span>") for _ in made.pieces)
    one, score = np.ones(1, np.float32), np.full(1, 3.0, np.float32)
    spans, sentence = np.array([[0, len(made)]], np.int32), np.zeros(1, np.int32)
    words = Words((bad,), spans, sentence, one, one, np.zeros(1, bool), score, np.ones(1, bool))
    query = Query(bad, bad + "!", (bad,), np.ones(1, np.float32), np.ones(1, bool), bad)
    decision, prompt = Decision(True, bad, 5, 1, 0), Prompt(bad, {bad: (0, 9)}, (bad,))
    step = Step(0, prompt, made, words, decision, query, (Passage(bad, bad, bad),))
    step.passages_prompt, step.continuation, step.notes = Prompt(bad), make(bad), [bad]
    step.kept, step.discarded = bad, bad
    asked = bad.rstrip("\ud800")  # a question holds whole characters only
    method = {"name": bad, bad: bad, "variant": "paper", "threshold": 1.2}
    trace = Trace(Question(asked, asked, (asked,)), method, [step], bad, bad)
    trace.ended, trace.error, trace.provenance, trace.notes = "error", bad, {bad: {bad: bad}, "model": bad}, [bad]
    return trace


def strange_traces() -> dict[str, Trace]:
    """A trace in every state that an episode, a method or a script can leave it in."""
    asked = Question("q", ASKED)
    method = {"name": "dragin", "variant": "reference", "when": "rind", "what": "qfs", "threshold": 1.2}
    whole = almanac_trace()
    made = make(FIRST)
    none = make("", [])
    bare = replace(
        made,
        received=np.full(len(made), np.nan, np.float32),
        alternative_ids=np.zeros((0, 0), np.int32),
        alternative_probs=np.zeros((0, 0), np.float32),
        alternative_tokens=(),
    )
    nan = np.full(len(whole.steps[0].words), np.nan, np.float32)
    blank = replace(whole.steps[0].words, attention=nan, entropy=nan, score=nan)
    states = {
        "empty": Trace(asked, {}),
        "running, a step that has only begun": Trace(asked, method, [Step(0, make_prompt(""))]),
        "running, a draft not decided": Trace(asked, method, [Step(0, make_prompt(""), made)]),
        "cancelled": replace(whole, steps=whole.steps[:1], ended="cancelled", scores={}, answer=""),
        "error": replace(whole, ended="error", error="the search failed: no index"),
        "error without a message": Trace(asked, method, ended="error"),
        "no attention, no alternatives": Trace(asked, method, [Step(0, draft=bare, kept=made.text)], made.text),
        "nothing written": Trace(asked, method, [Step(0, draft=none, decision=Decision(False, "empty"))]),
        "nothing found": Trace(asked, method, [Step(0, query=Query("", ""), continuation=none)]),
        "words not measured": replace(whole, steps=[replace(whole.steps[0], words=blank)], text=whole.steps[0].answer),
        "cut nowhere": Trace(asked, method, [Step(0, draft=made, decision=Decision(True, "r"), query=Query("a", "a"))]),
        "scored without a threshold": replace(whole, method={"name": "mine"}),
        "extraction": replace(whole, extraction=make(" 1466."), extraction_prompt=make_prompt(whole.text)),
        "generated on behind the decision": Trace(
            asked, method, [Step(0, draft=made, decision=Decision(False, "r", certain=False))]
        ),
        "paper variant": almanac_trace("paper"),
        "hostile": hostile_trace(),
    }
    return states | {"reference variant": whole} | {name: baseline_trace(name) for name in BASELINES}


STATES = strange_traces()
