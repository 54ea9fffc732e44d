"""What ends a draft early gives the same outcome as the whole draft would (design: a Stop is
data).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted import WordTokenizer
from test_sentences import texts

import dragin_lab as dl
from dragin_lab.core.dragin import Rind
from dragin_lab.core.episode import AnswerLine, AnyOf, FirstSentence, Watch, find_answer_end
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import TRIGGERS, Trigger, Verdict
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Draft

PIPELINE = load_pipeline()


def so_far(
    tokens: list[str],
    entropy: list[float],
    received: list[float] | None = None,
    *,
    special: tuple[int, ...] = (),
) -> Draft:
    """A draft of these tokens; ``special`` ones have no characters."""
    text, offsets = "", []
    for i, token in enumerate(tokens):
        offsets.append((len(text), len(text) + (0 if i in special else len(token))))
        text += "" if i in special else token
    known = np.array(
        received if received is not None else [1.0] * (len(tokens) - 1) + [0.0], np.float32
    )
    return Draft(
        ids=np.arange(len(tokens)),
        text=text,
        offsets=np.array(offsets),
        received=known,
        entropy=np.array(entropy),
        logprob=np.full(len(tokens), -0.1),
        pieces=tuple(tokens),
        ended=False,
    )


def rind(theta: float, *, resumed: bool = False, scale: str | None = None) -> Watch:
    return Watch(Rind(threshold=theta, scale=scale), PIPELINE, resumed)


def judge(watch: Watch, draft: Draft, *, ended: bool) -> Verdict:
    return watch.trigger.judge(draft.read_by(PIPELINE, ended=ended), resumed=watch.resumed)


def fires(watch: Watch, draft: Draft) -> bool:
    return watch.reached(draft) == "rind fired"


# -- RIND ------------------------------------------------------------------------------------------


def test_an_unfinished_character_may_belong_to_the_word_before_it() -> None:
    # "Bo" and two bytes of "é": the bytes have no characters yet, and the word may be "Boé".
    trigger = rind(1.0)
    assert not fires(trigger, so_far([" Bo", "?", "?"], [9.0, 0.1, 0.1], special=(1, 2)))
    assert fires(trigger, so_far([" Bo", " is", "?"], [9.0, 0.1, 0.1], special=(2,)))


@pytest.mark.parametrize("scale", [None, "sentence"])
@pytest.mark.parametrize("ended", [False, True])
def test_nothing_written_is_judged_to_lack_nothing(scale: str | None, ended: bool) -> None:
    trigger = rind(0.0, scale=scale)
    assert trigger.reached(Draft()) is None
    nothing = judge(trigger, Draft(), ended=ended)
    assert (len(nothing.words), nothing.fires, nothing.peak) == (0, False, -np.inf)
    only_end = judge(trigger, so_far(["</s>"], [1.0], [1.0], special=(0,)), ended=ended)
    assert only_end.words.text == ("",)
    assert not only_end.fires


@st.composite
def drafts(draw: st.DrawFn) -> tuple[list[str], list[float], np.ndarray]:
    """Tokens, entropies and attention (n, n) of a draft."""
    token = st.sampled_from(
        [" film", " the", "s", " Bo", "da", ".", " St", '"', " 1", "5", "\n", " "]
    )
    tokens = draw(st.lists(token, min_size=1, max_size=12))
    n = len(tokens)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return (
        tokens,
        rng.gamma(1.0, 1.0, n).astype(np.float32).tolist(),
        np.tril(rng.random((n, n)), -1),
    )


@given(drafts(), st.floats(0.1, 1.5), st.booleans())
def test_a_growing_draft_stops_at_the_first_prefix_that_judge_fires_on(
    draft: tuple[list[str], list[float], np.ndarray], theta: float, resumed: bool
) -> None:
    tokens, entropy, attention = draft
    trigger = rind(theta, resumed=resumed)
    first: int | None = None
    for n in range(1, len(tokens) + 1):
        # The rows of all tokens but the newest are known.
        received = attention[: n - 1, :n].max(axis=0, initial=0.0).astype(np.float32)
        made = so_far(tokens[:n], entropy[:n], received.tolist())
        verdict = judge(trigger, made, ended=False)
        assert fires(trigger, made) == verdict.fires
        if not verdict.fires:
            assert first is None, "as maxima only grow, what has fired stays fired"
            continue
        first = n if first is None else first
        start, stop = verdict.words.spans[verdict.word]
        assert stop < n
        assert not verdict.words.stop[verdict.word]
        # Its word is whole: whatever follows, it is the same, and it still fires (or an earlier one
        # does).
        whole = "".join(tokens)
        received = attention.max(axis=0).astype(np.float32)
        later = judge(trigger, so_far(tokens, entropy, received.tolist()), ended=True)
        assert verdict.words.text[verdict.word] == later.words.text[verdict.word]
        assert (later.words.spans[verdict.word] == (start, stop)).all()
        assert later.fires
        assert later.word <= verdict.word
        if resumed:
            ends = PIPELINE.spans(whole)[0][1]
            assert made.offsets[start][0] >= ends


# -- other triggers than RIND ----------------------------------------------------------------------


def test_a_sum_of_scores_below_theta_may_be_above_it_and_stops_the_draft() -> None:
    dl.when("total", threshold=1.0, pool="sum")(lambda draft: draft.entropy)
    trigger = TRIGGERS.make("total")
    draft = so_far([" Waj", "da", " is"], [0.6, 0.6, 0.1])
    assert not trigger.is_silent(draft.read_by(PIPELINE, ended=False))
    assert Watch(trigger, PIPELINE).reached(draft) == "total fired"
    highest = TRIGGERS.make("total@0.6")
    assert Watch(highest, PIPELINE).reached(so_far([" Waj", "da", " is"], [0.3, 0.3, 0.1])) is None


def test_a_trigger_that_judges_by_itself_is_asked_whatever_its_scores_are() -> None:
    @dataclass(frozen=True)
    class Third(Trigger):
        """Fires once three words are there."""

        name = "third"
        threshold: float = 1.0

        def score(self, draft: Draft) -> np.ndarray:
            return np.zeros(len(draft))

        def judge(
            self, draft: Draft, *, resumed: bool = False, until: int | None = None
        ) -> Verdict:
            verdict = super().judge(draft, resumed=resumed, until=until)
            return replace(verdict, hit=np.arange(len(verdict.score)) == 2)

    watch = Watch(Third(), PIPELINE)
    assert watch.reached(so_far([" Bo", " is"], [0.1, 0.1])) is None
    assert watch.reached(so_far([" Bo", " is", " far"], [0.1, 0.1, 0.1])) == "third fired"


@pytest.mark.parametrize("unit", ["sentence", "draft"])
def test_a_unit_that_fires_without_a_word_above_theta_fires_at_its_highest(unit: str) -> None:
    dl.when("total", threshold=1.0, unit=unit, pool="sum")(lambda draft: draft.entropy)
    verdict = TRIGGERS.make("total").judge(
        so_far([" Bo", " is", " far"], [0.3, 0.2, 0.6]).read_by(PIPELINE, ended=True)
    )
    assert (verdict.fires, verdict.word, verdict.peak) == (True, 2, pytest.approx(1.1))
    assert (
        not TRIGGERS.make("total@2")
        .judge(so_far([" Bo"], [0.3]).read_by(PIPELINE, ended=True))
        .fires
    )


def test_scores_below_zero_are_held_against_a_threshold_below_zero() -> None:
    @dataclass(frozen=True)
    class Own(Trigger):
        """The same as a class."""

        name = "own"
        threshold: float = -2.0

        def score(self, draft: Draft) -> np.ndarray:
            return -draft.entropy

    dl.when("below", threshold=-2.0)(lambda draft: -draft.entropy)
    draft = so_far([" Bo", " is"], [1.5, 3.0]).read_by(PIPELINE, ended=True)
    for trigger in (TRIGGERS.make("below"), Own()):
        assert trigger.judge(draft).word == 0
        silent = replace(trigger, threshold=-1.0)  # type: ignore[call-arg]
        assert not silent.judge(draft).fires
        assert (
            silent.describe_silence(silent.judge(draft).peak)
            == "no word scores above θ -1 (the highest: -1.5)"
        )
        assert silent.describe_silence(-np.inf) == "no word scores above θ -1"
    assert TRIGGERS.make("below@-3.5").theta == -3.5
    assert TRIGGERS.make(str(TRIGGERS.make("below@-3.5"))).theta == -3.5
    with pytest.raises(
        SettingError, match=r"threshold=-1\.0 is out of range; it must be at least 0"
    ):
        TRIGGERS.make("rind@-1")
    with pytest.raises(SettingError, match="threshold='nan' is out of range; it must be finite"):
        TRIGGERS.make("below@nan")


@pytest.mark.parametrize(
    ("score", "theta", "reason"),
    [
        (0.31, 0.25, "'Bo' scores 0.31, above θ 0.25"),
        (0.2504, 0.25, "'Bo' scores 0.2504, above θ 0.25"),
        (0.25 + 1e-12, 0.25, "'Bo' scores 0.250000000001, above θ 0.25"),
        (-0.4996, -0.5, "'Bo' scores -0.4996, above θ -0.5"),
        (0.2496, 0.25, "no word scores above θ 0.25 (the highest: 0.2496)"),
        (0.25, 0.25, "no word scores above θ 0.25 (the highest: 0.25)"),
    ],
)
def test_a_reason_has_the_digits_that_tell_a_score_from_the_threshold(
    score: float, theta: float, reason: str
) -> None:
    dl.when("level", threshold=-9.0)(lambda draft: draft.entropy)
    trigger = replace(TRIGGERS.make("level"), threshold=theta)  # type: ignore[call-arg]
    verdict = trigger.judge(so_far([" Bo", " is"], [score, -9.0]).read_by(PIPELINE, ended=True))
    assert (
        trigger.describe_hit(verdict) if verdict.fires else trigger.describe_silence(verdict.peak)
    ) == reason


def test_words_after_the_answer_are_not_judged() -> None:
    draft = so_far([" Bo", " is", " Li"], [0.1, 0.1, 9.0], [1.0] * 3).read_by(PIPELINE, ended=True)
    trigger = Rind(threshold=0.5)
    assert trigger.judge(draft).word == 2
    assert not trigger.judge(draft, until=6).fires
    assert trigger.judge(draft, until=6).judged.tolist() == [True, True, False]


# -- sentences -------------------------------------------------------------------------------------


@given(texts, texts)
@example(" One.\n", "\nTwo three")
@example("\n\nOne. Two ", "three. Four")
@example("He lived in St", ". Louis. Then he")
def test_a_first_sentence_that_stopped_a_draft_is_the_first_of_every_continuation(
    text: str, more: str
) -> None:
    """The soundness of early stopping: what is kept of a stopped draft is what would be kept of
    a full one.
    """
    stop = FirstSentence(PIPELINE)
    if stop.reached(Draft(text=text)) is None:
        return
    assert stop.reached(Draft(text=text + more)) == "sentence"
    whole = text + more
    # as the reference loop splits, and as the paper loop does
    assert PIPELINE.split(text.strip())[0] == PIPELINE.split(whole.strip())[0]
    assert PIPELINE.spans(text)[0] == PIPELINE.spans(whole)[0]


PHRASES = ("the answer is", " So the answer is", "answer", " is", " the")


@given(
    st.sampled_from(["▁", "Ġ"]),
    st.lists(st.one_of(texts, st.sampled_from(PHRASES)), max_size=4).map("".join),
    st.lists(st.one_of(texts, st.sampled_from(PHRASES)), max_size=4).map("".join),
    texts,
)
@example("▁", " So the answer is 1", ".5 m. Then", " he")
@example("▁", " So the answer is www.", "a.com and", " it. Then he left")
@example("Ġ", " So the answer is St.", "Louis. Then he", "")
def test_an_answer_that_stopped_a_draft_ends_there_in_every_continuation(
    marker: str, before: str, text: str, more: str
) -> None:
    tokenizer = WordTokenizer(marker)
    stop = AnswerLine(tokenizer, before)

    def made(written: str) -> Draft:
        ids = [i for i, _, _ in tokenizer.cut(written)]
        return Draft(np.array(ids), tokenizer.decode(ids, special=False))

    if stop.reached(made(text)) is None:
        return
    assert stop.reached(made(text + more)) == "answer"
    # Behind each other as the model wrote them, spaces and all.
    end = find_answer_end(before + text, ended=True)
    assert end is not None
    assert end == find_answer_end(before + text + more, ended=True)


def test_the_answer_reaches_to_the_end_of_its_line_or_to_where_it_is_stated_again() -> None:
    text = " It is. So the answer is Bo.\nThen he. "
    assert text[: find_answer_end(text, ended=True)] == " It is. So the answer is Bo."
    assert find_answer_end(text, ended=False) == find_answer_end(text, ended=True)
    again = " The Answer is Dr. No. Two. Thus, the answer is Bo"
    assert again[: find_answer_end(again, ended=False)] == " The Answer is Dr. No. Two."
    assert find_answer_end(" So the answer is", ended=True) is None
    assert find_answer_end(" So the answer is Bo", ended=False) is None
    assert find_answer_end(" So the answer is Bo", ended=True) == 20


def test_first_of_several_stops_gives_the_reason() -> None:
    stop = AnyOf((rind(1.0), FirstSentence(PIPELINE)))
    both = so_far([" It", ".", " Bo", " is", " x"], [0.1, 0.1, 9.0, 0.1, 0.1])
    assert stop.reached(both) == "rind fired"
    assert stop.reached(so_far([" It", ".", " Bo", " is", " x"], [0.1] * 5)) == "sentence"
    assert stop.reached(so_far([" It"], [9.0], [0.0])) is None


def test_nothing_fires_in_a_thought_unless_it_is_asked_for() -> None:
    pieces = ["<think>", " Bo", " is", "</think>", " Li", " is"]
    draft = so_far(pieces, [0.1, 9.0, 0.1, 0.1, 8.0, 0.1], [1.0] * 6).read_by(PIPELINE, ended=True)
    assert [draft.words[i] for i in np.flatnonzero(Rind(threshold=1.0).judge(draft).hit)] == ["Li"]
    dl.when("inside", threshold=1.0, needs=["thoughts"])(lambda draft: draft.entropy)
    assert draft.words[TRIGGERS.make("inside").judge(draft).word] == "Bo"
    later = so_far([" Bo", " is"], [9.0, 0.1], [1.0] * 2).read_by(
        PIPELINE, thought="<think>", ended=True
    )
    assert not Rind(threshold=1.0).judge(later).fires
