"""Hand-built traces with every field filled: no model, no randomness beyond a fixed seed."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.trace.draft import Word
from dragin_lab.trace.trace import (
    Decision,
    Draft,
    Passage,
    Prompt,
    Query,
    Question,
    Step,
    Trace,
    Words,
)

HEADS = 2
METHOD = {
    "name": "dragin",
    "variant": "paper",
    "when": "rind",
    "what": "qfs",
    "threshold": 1.2,
    "top_n": 25,
}
METHOD |= {"scale": None, "check_content_words": True}
QUESTION = "Who is the mother of the director of film Polish-Russian War?"
DRAFT = "The director of film Polish-Russian War is Andrzej Wajda."
RESUMED = "The director of film Polish-Russian War is Xawery Żuławski."
LAST = (
    "The mother of Xawery Żuławski is Małgorzata Braunek. So the answer is Małgorzata Braunek 🎬."
)

#: Two sentences, the second one's fact missing.
ELM_ROAD = Labelled(
    "q1",
    "iirc",
    "test",
    "span",
    "When was the director of Elm Road born?",
    "unknown",
    "The film Elm Road was directed by Ada Orleth. Ada Orleth was born in 1938.",
    "1938",
    (
        Fact("a", "Elm Road", "director", "Ada Orleth", 34, 44, "known", "often", None, "1"),
        Fact("b", "Ada Orleth", "born", "1938", 69, 73, "unknown", "never", None, "2"),
    ),
)


def causal(seed: int, heads: int, n: int) -> np.ndarray:
    """(h, n, n) float32 rows of a softmax over the positions up to their own (Eq. 2)."""
    weights = np.exp(np.random.default_rng(seed).normal(0, 3, (heads, n, n))) * np.tril(
        np.ones((n, n))
    )
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@st.composite
def words_of_tokens(draw: st.DrawFn) -> list[Word]:
    """Words of one to three tokens each."""
    ends = np.cumsum([0, *draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))]).tolist()
    return [Word(f"w{k}", start, stop) for k, (start, stop) in enumerate(pairwise(ends))]


def make_passages() -> tuple[Passage, ...]:
    """Two passages, best first."""
    return (
        Passage(
            "17",
            "Polish-Russian War (film)",
            "Polish-Russian War is a 2009 film by Xawery Żuławski.",
            21.25,
        ),
        Passage("4", "", "Wojna polsko-ruska is a novel.\n«Zażółć» it, 電影.", 13.5),
    )


def make_prompt(answer: str = "", passages: tuple[Passage, ...] = ()) -> Prompt:
    """A prompt with an exemplar, the passages that were found, the question and the answer so
    far.
    """
    parts = (
        (
            "exemplars",
            "Question: Is the sky blue?\nAnswer: The sky is blue. So the answer is yes.\n\n",
        ),
        ("passages", "".join(f"[{rank}] {p.text}\n" for rank, p in enumerate(passages, 1))),
        ("question", QUESTION),
        ("", "\nAnswer: "),
        ("answer", answer),
    )
    return Prompt.join(
        parts, notes=("exemplar 2 was dropped to fit 2,048 tokens",) if passages else ()
    )


def make_continuation(
    prompt: Prompt,
    text: str,
    *,
    attention: bool = True,
    ended: bool = False,
    sampled: bool = False,
    seed: int = 7,
) -> Draft:
    """What a model with one token a word or punctuation mark would have written; ``ended``
    closes it with an EOS.
    """
    rng = np.random.default_rng(seed)
    spans = [m.span() for m in re.finditer(r"\s*(?:\w+|[^\w\s])", text)]
    prompt_spans = [m.span() for m in re.finditer(r"\s*(?:\w+|[^\w\s])", prompt.text)]
    tokens = [text[a:b].replace(" ", "▁") for a, b in spans] + ["</s>"] * ended
    spans += [(len(text), len(text))] * ended
    n, p = len(tokens), len(prompt_spans) + 1
    rows = np.tril(rng.random((HEADS, n + 1, p + n)), p - 1)
    rows /= rows.sum(-1, keepdims=True)
    mean = rows.mean(0)
    received = [float(mean[i + 2 :, p + i].max(initial=0.0)) for i in range(n)]
    best = np.sort(rng.dirichlet(np.ones(5), n)[:, :3], axis=1)[:, ::-1] if n else np.zeros((0, 3))
    ids = rng.integers(3, 32000, n)
    others = rng.integers(3, 32000, (n, 2))
    return Draft(
        prompt_ids=np.concatenate([[1], rng.integers(3, 32000, p - 1)]).astype(np.int32),
        prompt_offsets=np.array([(0, 0), *prompt_spans], np.int32),
        ids=ids.astype(np.int32),
        pieces=tuple(tokens),
        text=text,
        raw_text=text + "</s>" * ended,
        offsets=np.array(spans, np.int32).reshape(n, 2),
        entropy=rng.gamma(1.0, 1.0, n).astype(np.float32),
        logprob=np.log(best[:, 0]).astype(np.float32),
        alternative_ids=np.column_stack([ids, others]).astype(np.int32),
        alternative_probs=best.astype(np.float32),
        received=np.array(received, np.float32),
        stopped="eos" if ended else "length",
        states=rng.normal(size=(n, 2)).astype(np.float32) if sampled else None,
        entropy_processed=rng.gamma(1.0, 0.5, n).astype(np.float32) if sampled else None,
        rows=rows.astype(np.float16) if attention else None,
        among=mean[1:, p:][np.tril_indices(n)].astype(np.float32) if attention else None,
        alternative_tokens=tuple((token, "▁the", "<0x0A>") for token in tokens),
        seconds=0.125,
        reused=p - 1,
    )


def make_words(draft: Draft) -> Words:
    """One word a run of tokens up to the next one that starts with a space; "Andrzej" is the
    hit.
    """
    starts = [i for i, token in enumerate(draft.pieces) if i == 0 or token.startswith("▁")]
    end = int((draft.offsets[:, 0] < draft.offsets[:, 1]).sum())  # a closing EOS is part of no word
    starts = [start for start in starts if start < end]
    spans = np.array(list(zip(starts, [*starts[1:], end], strict=True)), np.int32).reshape(-1, 2)
    text = tuple("".join(draft.pieces[a:b]).replace("▁", " ").strip() for a, b in spans)
    attention = np.array([draft.received[a:b].max(initial=0.0) for a, b in spans], np.float32)
    entropy = np.array([draft.entropy[a:b].max(initial=0.0) for a, b in spans], np.float32)
    stop = np.array([word.lower() in {"the", "of", "is"} for word in text], bool)
    hit = np.array([word == "Andrzej" for word in text], bool)
    score = np.select([stop, hit], [0.0, 2.69], attention * entropy).astype(np.float32)
    judged = np.ones(len(text), bool)
    return Words(
        text, spans, np.zeros(len(text), np.int32), attention, entropy, stop, score, hit, judged
    )


def make_trace(*, attention: bool = True, hidden: bool = False) -> Trace:
    """A dragin episode of two steps: one that retrieved (and threw "Andrzej Wajda." away), one
    that ended.
    """
    passages = make_passages()
    prompt = make_prompt()
    draft = make_continuation(prompt, DRAFT, attention=attention, sampled=True, seed=1)
    draft.states = draft.states if hidden else None
    words = make_words(draft)
    cut = DRAFT.index(" Andrzej")
    hit = words.text.index("Andrzej")
    with_passages = make_prompt(DRAFT[:cut], passages)
    resumed = make_continuation(with_passages, RESUMED[cut:], attention=attention, seed=2)
    first = Step(
        index=0,
        prompt=prompt,
        draft=draft,
        words=words,
        decision=Decision(
            True,
            "'Andrzej' scores 2.69 > θ 1.2",
            cut,
            int(words.spans[hit, 0]),
            0,
            (0.5, 2.69),
            True,
        ),
        query=Query(
            text="director Polish-Russian War mother",
            sent="director Polish-Russian War mother",
            words=("mother", "director", "film", "Polish-Russian"),
            weights=np.array([0.25, 0.5, 0.0625, 0.375], np.float32),
            chosen=np.array([True, True, False, True]),
            note="",
        ),
        passages=passages,
        passages_prompt=with_passages,
        continuation=resumed,
        continuation_kept=len(resumed.text),
        kept=RESUMED,
        discarded=DRAFT[cut:],
        answer=RESUMED,
        notes=["re-encoded text gives other ids from token 3 on"],
        seconds={"draft": 0.25, "search": 0.004},
    )
    second_prompt = make_prompt(RESUMED)
    last = make_continuation(second_prompt, " " + LAST, attention=attention, ended=True, seed=3)
    last_words = make_words(last)
    second = Step(
        index=1,
        prompt=second_prompt,
        draft=last,
        words=last_words,
        decision=Decision(False, "no word scores above θ 1.2", certain=False),
        kept=" " + LAST,
        answer=f"{RESUMED} {LAST}",
        seconds={"draft": 0.25},
    )
    extraction_prompt = make_prompt(f"{RESUMED} {LAST} So the answer is")
    return Trace(
        question=Question("q-1", QUESTION, ("Małgorzata Braunek", "Malgorzata Braunek")),
        method=dict(METHOD),
        steps=[first, second],
        text=f"{RESUMED} {LAST}",
        answer="Małgorzata Braunek 🎬",
        scores={"em": 0.0, "f1": 0.8, "precision": 2 / 3, "recall": 1.0},
        ended="answered",
        extraction=make_continuation(
            extraction_prompt, " Małgorzata Braunek.", attention=attention, seed=4
        ),
        extraction_prompt=extraction_prompt,
        provenance={
            "model": {"id": "embedded", "dtype": "float32", "weights": "sha256:00"},
            "retriever": {"kind": "bm25", "k1": 1.2, "b": 0.75},
            "versions": ["torch 2.13.0", "transformers 5.23"],
            "seed": 0,
        },
        notes=["sentences found by rule: no spaCy model installed"],
        seconds=1.5,
    )


def make_step(index: int, text: str, found: tuple[Passage, ...] | None = None) -> Step:
    """A step that writes ``text``: with ``found`` passages in its prompt, or with none and no
    search.
    """
    if found is None:
        return Step(
            index,
            make_prompt(),
            make_continuation(make_prompt(), text),
            decision=Decision(False, ""),
            kept=text,
        )
    prompt = make_prompt("", found)
    made = make_continuation(prompt, text)
    return Step(
        index,
        decision=Decision(True, "fires"),
        query=Query("mother Otto", "mother Otto"),
        passages=found,
        passages_prompt=prompt,
        continuation=made,
        continuation_kept=len(text),
        kept=text,
    )


def make_episode(
    question: str,
    *written: tuple[str, tuple[Passage, ...] | None],
    golds: tuple[str, ...] = (),
    answer: str = "",
    ended: str = "answered",
) -> Trace:
    """An episode that wrote these texts in turn, each as ``make_step`` has it."""
    steps = [make_step(index, text, found) for index, (text, found) in enumerate(written)]
    text = "".join(text for text, _ in written)
    return Trace(Question("q", question, golds), {"when": "rind"}, steps, text, answer, ended=ended)
