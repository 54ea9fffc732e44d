"""A draft judged token by token, each time going on from the last, has the verdicts of the draft
judged as a whole.

So have a text's sentences, where it is split as it grows.
"""

from __future__ import annotations

import numpy as np
from given import texts
from hypothesis import given
from hypothesis import strategies as st

import dragin_lab as dl
from dragin_lab.core.episode import Watch
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.trace.draft import Draft

#: Texts of several scripts, of marks that end sentences or seem to, and of white space.
PARTS = st.sampled_from(
    [
        *[
            "Bo",
            "Ek",
            "Dr.",
            "etc.",
            "e.g.",
            "J.",
            "1.",
            "3.5",
            "U.S.",
            "said:",
            '"No.',
            "“Go!”",
            "(Li)",
            "[3]",
            "電影。",
            "是！「好。」",
            "क्या",
            "है।",
            "é",
        ],
        *"สวัสดี ደህና። Привет! שלום. مرحبا؟".split(),  # noqa: SIM905
        *(" ", "  ", "\n", "\n\n", ". ", "?", "! ", "...", "…", "\t"),
    ]
)
written = st.one_of(
    texts, st.lists(PARTS, min_size=1, max_size=40).map(" ".join), st.lists(PARTS).map("".join)
)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """A draft of any tokens: pieces of a text, characters in several tokens, tokens without
    text.
    """
    text = draw(written)
    ends = sorted([*draw(st.lists(st.integers(0, len(text)), max_size=60)), len(text)])
    offsets = np.array(list(zip([0, *ends], ends, strict=False)), np.int32).reshape(-1, 2)
    n = len(offsets)
    numbers = st.sampled_from([0.0, 0.1, 0.25, 0.5, 2.0])
    entropy, received = (draw(st.lists(numbers, min_size=n, max_size=n)) for _ in range(2))
    return Draft(
        ids=np.arange(n, dtype=np.int32),
        text=text,
        raw_text=text,
        offsets=offsets,
        pieces=("x",) * n,
        entropy=np.array(entropy, np.float32),
        logprob=-np.array(entropy, np.float32),
        received=np.array(received, np.float32),
        stopped="length",
    )


@given(
    drafts(),
    st.sampled_from([-1.0, 0.0, 0.1, 0.5]),
    st.booleans(),
    st.sampled_from([None, "sentence"]),
)
def test_judging_on_is_judging_the_whole(
    draft: Draft, theta: float, resumed: bool, scale: str | None
) -> None:
    trigger, pipeline = (
        dl.method("dragin", threshold=max(theta, 0.0), scale=scale).trigger,
        load_pipeline(),
    )
    watch = Watch(trigger, pipeline, resumed)
    for n in range(1, len(draft) + 1):
        whole = trigger.judge(watch.read(draft[:n]), resumed=resumed)
        grown = watch.judge_so_far(watch.read(draft[:n]))
        for name in ("score", "highest", "judged", "hit"):
            assert (getattr(whole, name) == getattr(grown, name)).all(), (name, n)
        assert whole.draft.word_list == grown.draft.word_list
        assert (whole.draft.stop_of_word == grown.draft.stop_of_word).all()
        assert (whole.draft.sentences, whole.draft.settled) == (
            grown.draft.sentences,
            grown.draft.settled,
        )


def test_a_draft_goes_on_from_its_own_beginning_alone() -> None:
    def read(text: str) -> Draft:
        ends = np.cumsum([len(word) + 1 for word in text.split()])
        offsets = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).clip(max=len(text))
        zeros = np.zeros(len(ends))
        draft = Draft(
            ids=zeros, text=text, offsets=offsets, entropy=zeros, logprob=zeros, received=zeros
        )
        return draft.read_by(load_pipeline(), ended=False)

    watch = Watch(dl.method("dragin", threshold=0.0).trigger, load_pipeline())
    watch.judge_so_far(read("It is by Bo Ek. He went on to Li and"))
    other = watch.judge_so_far(read("No. It was made by another. She says it is so")).draft
    assert other.words[:2] == ("No.", "It")
    assert other.sentences[0] == (0, 3)
