"""The decode loop: reuse of the cache, stopping, end of sequence, streaming, sampling, limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
from lm_tiny import CLOSE, After, alike, drained, sampling, tiny

from dragin_lab.core.episode import Bias, Write
from dragin_lab.engines.engine import stream_draft
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft, Prompt

PROMPT = Prompt(lm_tiny.PROMPT)


@dataclass(frozen=True)
class Seeing(After):
    """Keeps what it was shown."""

    seen: list[Draft] = field(default_factory=list, compare=False)

    def reached(self, so_far: Draft) -> str | None:
        self.seen.append(replace(so_far, received=so_far.received.copy()))
        return super().reached(so_far)


# -- one draft beside another ----------------------------------------------------------------------


def test_two_streams_at_once_do_not_share_a_cache() -> None:
    lm = tiny()
    expected = [tiny().write(Write(p, 6)) for p in (PROMPT, Prompt("Answer: Ulm"))]
    one, two = stream_draft(lm, Write(PROMPT, 6)), stream_draft(lm, Write(Prompt("Answer: Ulm"), 6))
    for _ in range(5):
        next(one)
        next(two)
        lm.attend([5, 6, 7])
    alike(drained(one)[1], expected[0])
    alike(drained(two)[1], expected[1])


def test_threads_may_share_a_model() -> None:
    lm = tiny()
    prompts = [Prompt(f"{lm_tiny.PROMPT} {i}") for i in range(4)]
    expected = [tiny().write(Write(p, 12)) for p in prompts]
    maps = lm.attend([9, 8, 7, 6])

    def work(i: int) -> Draft:
        for _ in range(3):
            output = lm.write(Write(prompts[i], 12))
            np.testing.assert_allclose(lm.attend([9, 8, 7, 6]), maps, atol=CLOSE)
        return output

    with ThreadPoolExecutor(4) as pool:
        for output, wanted in zip(pool.map(work, range(4)), expected, strict=True):
            alike(output, wanted)


# -- stopping --------------------------------------------------------------------------------------


def test_stop_sees_every_token_in_order_and_ends_the_draft() -> None:
    full = tiny().write(Write(PROMPT, 12, attention=True))
    stop = Seeing(7, looks=1)
    output = tiny().write(Write(PROMPT, 12, stop, attention=True))
    assert output.stopped == "enough"
    assert output.ids.tolist() == full.ids[:7].tolist()
    assert [len(so_far.ids) for so_far in stop.seen] == [1, 2, 3, 4, 5, 6, 7]
    p = len(output.prompt_ids)
    mean = full.rows.astype(np.float32).mean(0)
    for t, so_far in enumerate(stop.seen):
        assert list(so_far.ids) == full.ids[: t + 1].tolist()
        assert full.text.startswith(so_far.text)
        assert len(so_far.offsets) == len(so_far.entropy) == len(so_far.received) == t + 1
        np.testing.assert_allclose(so_far.entropy, full.entropy[: t + 1], atol=1e-5)
        # the rows of the tokens before token t are known, token t's own is not
        expected = [
            max((mean[j + 1, p + i] for j in range(i + 1, t)), default=0.0) for i in range(t + 1)
        ]
        # `mean` is made of float16
        np.testing.assert_allclose(so_far.received, expected, atol=5e-4)
    # the last token was fed: its look back counts in the result
    assert output.received[5] == pytest.approx(mean[7, p + 5], abs=5e-4)
    assert output.received[6] == 0


# -- streaming -------------------------------------------------------------------------------------


def test_a_stream_says_what_the_continuation_says_and_a_closed_one_leaves_the_model_usable() -> (
    None
):
    lm = tiny()
    stream = stream_draft(lm, Write(PROMPT, 20))
    next(stream)
    stream.close()
    events, output = drained(stream_draft(lm, Write(PROMPT, 20)))
    alike(output, tiny().write(Write(PROMPT, 20)))
    for n, early in enumerate(events, 1):
        assert early.ids.tolist() == output.ids[:n].tolist()
        np.testing.assert_array_equal(early.entropy, output.entropy[:n])
        np.testing.assert_array_equal(early.logprob, output.logprob[:n])
        assert output.text.startswith(early.text)
        assert not early.ended


def test_a_forward_that_failed_does_not_leave_half_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny()
    with monkeypatch.context() as patch:
        last, calls = lm.model.model.layers[-1], count(1)
        forward = last.forward

        def break_off(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == 3:
                raise KeyboardInterrupt
            return forward(*args, **kwargs)

        patch.setattr(last, "forward", break_off)
        with pytest.raises(KeyboardInterrupt):
            list(stream_draft(lm, Write(PROMPT, 12)))
    output = lm.write(Write(PROMPT, 12))
    assert output.reused == 0
    alike(output, tiny().write(Write(PROMPT, 12)))


# -- sampling --------------------------------------------------------------------------------------


def test_sampling_follows_the_generation_config_and_the_seed() -> None:
    settings = {"temperature": 1.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2}
    lm = sampling(**settings)
    one, again, other = (lm.write(Write(PROMPT, 16), seed=s) for s in (3, 3, 4))
    assert one.ids.tolist() == again.ids.tolist() != other.ids.tolist()
    assert len({tuple(lm.write(Write(PROMPT, 16)).ids) for _ in range(3)}) > 1, (
        "without a seed draws differ"
    )
    assert not np.allclose(one.entropy_processed, one.entropy, atol=1e-2)
    assert (one.entropy_processed <= np.log(20) + 1e-5).all()
    # the same draws as generate() makes from the same seed
    torch.manual_seed(3)
    ids = torch.tensor([one.prompt_ids.tolist()])
    output = lm.model.generate(
        ids, max_new_tokens=16, output_logits=True, output_scores=True, return_dict_in_generate=True
    )
    assert output.sequences[0, ids.shape[1] :].tolist() == one.ids.tolist()
    raw = torch.cat(output.logits).log_softmax(-1)
    np.testing.assert_allclose(one.entropy, -(raw.exp() * raw).sum(-1), atol=1e-5)
    warped = torch.cat(output.scores).softmax(-1)
    np.testing.assert_allclose(one.entropy_processed, torch.special.entr(warped).sum(-1), atol=1e-5)


def test_greedy_decoding_keeps_what_the_config_does_to_logits() -> None:
    model = lm_tiny.build("llama")
    model.generation_config.update(repetition_penalty=1.8, eos_token_id=None)
    lm = LanguageModel(model, lm_tiny.byte_level())
    output = lm.write(Write(PROMPT, 16))
    ids = torch.tensor([output.prompt_ids.tolist()])
    expected = model.generate(ids, max_new_tokens=16, do_sample=False)[0, ids.shape[1] :]
    assert output.ids.tolist() == expected.tolist() != tiny().write(Write(PROMPT, 16)).ids.tolist()
    assert output.entropy_processed is not None


# -- a forced beginning ----------------------------------------------------------------------------


def measured_as_in_one_pass(lm: LanguageModel, output: Draft) -> torch.Tensor:
    """Log-probabilities (n, V) of one pass, after entropies and chosen tokens were compared with
    them.
    """
    whole = torch.tensor([[*output.prompt_ids.tolist(), *output.ids.tolist()]])
    logs: torch.Tensor = (
        lm.model(whole).logits[0, len(output.prompt_ids) - 1 : -1].detach().log_softmax(-1)
    )
    np.testing.assert_allclose(output.entropy, torch.special.entr(logs.exp()).sum(-1), atol=1e-5)
    np.testing.assert_allclose(
        output.logprob, logs.gather(1, whole[0, -len(output) :, None])[:, 0], atol=1e-5
    )
    return logs


def test_a_forced_beginning_is_measured_as_what_the_model_writes() -> None:
    lm = tiny()
    forced = (9, 5, 300)
    output = lm.write(Write(PROMPT, 6, prefix=forced))
    assert output.ids[:3].tolist() == list(forced)
    assert output.ids[3:].tolist() == measured_as_in_one_pass(lm, output).argmax(-1)[3:].tolist()
    assert lm.write(Write(PROMPT, 2, prefix=forced)).ids.tolist() == [9, 5]


@pytest.mark.parametrize("sample", [False, True])
def test_forcing_what_the_model_writes_changes_nothing(sample: bool) -> None:
    lm = sampling(temperature=1.7, repetition_penalty=1.2) if sample else tiny()
    free = lm.write(Write(PROMPT, 12, attention=True), seed=3)
    for n in (1, 7, 12):
        draft = Write(PROMPT, 12, attention=True, prefix=tuple(free.ids[:n].tolist()))
        alike(lm.write(draft, seed=3), free)


# -- bias ------------------------------------------------------------------------------------------


def opening(lm: LanguageModel, output: Draft, t: int) -> str:
    """The text of a token without the space before it."""
    return str(lm.tokenizer.tokens([int(output.ids[t])])[0]).removeprefix(lm.tokenizer.marker)


def test_forbidden_tokens_are_not_written_and_what_is_measured_is_raw() -> None:
    lm = tiny()
    free = lm.write(Write(PROMPT, 6))
    word = opening(lm, free, 0)
    ids = set(lm.tokenizer.openings(word))
    assert int(free.ids[0]) in ids
    output = lm.write(Write(PROMPT, 6, bias=(Bias(word, float("-inf"), 0, 2),)))
    assert not ids & set(output.ids[:2].tolist())
    # the forbidden one is the likeliest
    assert output.alternative_ids[0].tolist() == free.alternative_ids[0].tolist()
    assert output.ids[0] in free.alternative_ids[0]
    assert output.entropy_processed is None
    measured_as_in_one_pass(lm, output)


def test_a_bonus_holds_for_its_tokens_only() -> None:
    lm = tiny()
    ids = set(lm.tokenizer.openings("Qx"))
    # a longer one that begins otherwise is none
    assert {lm.tokenizer.tokens([i])[0] for i in ids} == {"Q"}
    free = lm.write(Write(PROMPT, 8))
    assert not ids & set(free.ids.tolist())
    output = lm.write(Write(PROMPT, 8, bias=(Bias("Qx", 1e4, 3, 5),)))
    assert [int(i) in ids for i in output.ids[:5]] == [False, False, False, True, True]
    assert output.ids[:3].tolist() == free.ids[:3].tolist()
    to_the_end = lm.write(Write(PROMPT, 8, bias=(Bias("Qx", 1e4, 3),)))
    assert all(int(i) in ids for i in to_the_end.ids[3:])
    nothing = lm.write(Write(PROMPT, 8, bias=(Bias("Qx", 0.0),)))
    assert nothing.ids.tolist() == free.ids.tolist()


def test_a_bias_goes_before_what_the_config_does_to_logits() -> None:
    lm = sampling(temperature=0.5)
    ids = set(lm.tokenizer.openings("Qx"))
    output = lm.write(
        Write(PROMPT, 4, bias=(Bias("Qx", 1e4, 0, 1), Bias("Qx", float("-inf"), 1))), seed=1
    )
    assert [int(i) in ids for i in output.ids] == [True, False, False, False]
    assert output.entropy_processed[0] < 1e-3 < output.entropy[0]


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_a_table_of_positions_refuses_what_does_not_fit(kind: str) -> None:
    lm = tiny(kind)
    assert (lm.context_window, lm.hard_window) == (256, True)
    p = len(lm.tokenizer.encode_prompt(PROMPT)[0])
    with pytest.raises(
        ModelError, match=f"{p} prompt tokens and {257 - p} new ones do not fit into the 256"
    ):
        lm.write(Write(PROMPT, 257 - p))
    with pytest.raises(ModelError, match="257 tokens do not fit"):
        lm.attend([5] * 257)
    with pytest.raises(ModelError, match="do not fit"):
        lm.score(PROMPT, " Ada was" * 300)
    assert len(lm.write(Write(PROMPT, 256 - p))) == 256 - p


def test_an_empty_prompt_starts_from_bos_or_is_refused() -> None:
    lm = tiny()
    output = lm.write(Write(Prompt(""), 3))
    assert output.prompt_ids.tolist() == [1]
    assert output.prompt_offsets.tolist() == [[0, 0]]
    lm.tokenizer.hf = type(lm.tokenizer.hf)(tokenizer_object=lm.tokenizer.hf.backend_tokenizer)
    with pytest.raises(ModelError, match="the prompt is empty"):
        lm.write(Write(Prompt(""), 3))


# -- a text that is there already ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["almanac-prototype", "almanac-small"])
def test_score_of_a_generated_text_is_what_generating_it_measured(name: str) -> None:
    lm = LanguageModel.load(lm_tiny.PARITY / name)
    output = lm.write(Write(PROMPT, 24, attention=True))
    lead = "" if output.text.startswith(" ") else " "
    forced = lm.score(PROMPT, lead + output.text, attention=True)
    alike(replace(output, stopped="forced"), forced, close=1e-4, half=1e-3)


def test_score_leaves_the_cache_of_drafts_alone() -> None:
    lm = LanguageModel.load(lm_tiny.PARITY / "almanac-small")
    prompt = Prompt(PROMPT.text, {"exemplars": (0, 20)})
    assert lm.write(Write(prompt, 4)).reused == 0
    lm.score(Prompt("Something else"), " entirely.")
    assert lm.write(Write(prompt, 4)).reused > 0


def test_what_has_no_tokens_and_a_text_that_merges_with_the_prompt_are_refused() -> None:
    lm = tiny()
    with pytest.raises(ModelError, match="max_new_tokens=0"):
        lm.write(Write(PROMPT, 0))
    with pytest.raises(ModelError, match="no tokens"):
        lm.score(PROMPT, "")
    encode = lm.tokenizer.encode
    whole = encode("mother", special=False)
    heads = {cut: encode("mother"[:cut], special=False) for cut in range(1, 6)}
    cut = next(cut for cut, ids in heads.items() if ids != whole[: len(ids)])
    with pytest.raises(ModelError, match="merges with the end"):
        lm.score(Prompt("mother"[:cut]), "mother"[cut:])
