"""A draft served from a cache has the very bits that the model made; another request is not
served.
"""

from __future__ import annotations

from dataclasses import fields, replace

import lm_tiny
import numpy as np
import pytest
from lm_tiny import CLOSE, After, alike, drained, tiny, written

from dragin_lab.core.episode import Bias, Write
from dragin_lab.engines.engine import stream_draft
from dragin_lab.engines.load import LanguageModel
from dragin_lab.run.cache import Cache, serve_from
from dragin_lab.trace.trace import Draft, Prompt

PROMPT = Prompt(lm_tiny.PROMPT, {"exemplars": (0, 20)})


def identical(output: Draft, served: Draft) -> None:
    """What is read again from where it was written is the same to the bit."""
    for field in fields(Draft):
        if field.name not in ("seconds", "reused", "stored"):
            a, b = getattr(output, field.name), getattr(served, field.name)
            np.testing.assert_array_equal(a, b, err_msg=field.name)
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
    from_cache(served)


def from_cache(served: Draft) -> None:
    assert served.stored
    assert served.reused == len(served.prompt_ids)


# -- the same --------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [0, 1])
def test_every_beginning_is_served_as_the_model_makes_it(looks: int) -> None:
    lm, cache = tiny("gemma3"), Cache()
    model = serve_from(lm, cache)
    longest = model.write(Write(PROMPT, 40, After(99, looks), attention=True))
    assert not longest.stored
    identical(longest, model.write(Write(PROMPT, 40, After(99, looks), attention=True)))
    for n in (1, 20, 32, 33):
        for options in ({"attention": True}, {}):
            draft = Write(PROMPT, 40, After(n, looks), **options)
            served = model.write(draft)
            from_cache(served)
            alike(lm.write(draft), served)
            for name in ("entropy", "logprob", "alternative_probs"):
                np.testing.assert_array_equal(getattr(served, name), getattr(longest, name)[:n])
    assert (cache.counts.drafts_made, cache.counts.drafts_outgrown) == (1, 0)


def test_a_stream_has_the_same_events() -> None:
    lm, cache = tiny(), Cache()
    draft = Write(PROMPT, 12, After(7))
    model = serve_from(lm, cache)
    model.write(Write(PROMPT, 12))
    events, output = drained(stream_draft(model, draft))
    expected, fresh = drained(stream_draft(lm, draft))
    for one, two in zip(events, expected, strict=True):
        assert (one.ids.tolist(), one.text, one.offsets.tolist()) == (
            two.ids.tolist(),
            two.text,
            two.offsets.tolist(),
        )
        np.testing.assert_allclose(one.entropy, two.entropy, atol=CLOSE)
        np.testing.assert_allclose(one.received, two.received, atol=CLOSE)
    alike(fresh, output)
    from_cache(output)
    assert (cache.counts.tokens_made, cache.counts.tokens_served) == (12, 7)


def test_a_text_that_has_ended_is_served_with_processed_entropies_to_whoever_asks_for_more() -> (
    None
):
    built = lm_tiny.build("llama")
    built.generation_config.update(repetition_penalty=1.5, eos_token_id=None)
    lm = LanguageModel(built, lm_tiny.byte_level())
    lm.eos = frozenset([int(lm.write(Write(PROMPT, 20)).ids[9])])
    model = serve_from(lm, Cache())
    ended = model.write(Write(PROMPT, 12))
    assert ended.stopped == "eos"
    longer = model.write(Write(PROMPT, 60))
    identical(ended, longer)
    assert longer.entropy_processed is not None


# -- what is not served ----------------------------------------------------------------------------


def test_what_is_kept_too_short_is_made_anew_and_replaced() -> None:
    lm, cache = tiny(), Cache()
    model = serve_from(lm, cache)
    model.write(Write(PROMPT, 6))
    events, longer = drained(stream_draft(model, Write(PROMPT, 10)))
    assert [len(event) for event in events] == list(range(1, 11)), "the stream begins once"
    assert not longer.stored
    assert (cache.counts.drafts_outgrown, cache.counts.tokens_made) == (1, 16)
    identical(longer, model.write(Write(PROMPT, 10)))
    assert len(cache) == 1
    assert not model.write(Write(PROMPT, 10, attention=True)).stored, "attention is not invented"
    sampling = tiny(sample=True)
    assert serve_from(sampling, cache) is sampling
    assert serve_from(lm, None) is lm


def test_another_request_is_another_key() -> None:
    model = serve_from(tiny(), Cache())
    drafts = [
        Write(PROMPT, 6),
        Write(replace(PROMPT, text=PROMPT.text + " x"), 6),
        Write(replace(PROMPT, special=False), 6),
        Write(PROMPT, 6, bias=(Bias("a", 2.0),)),
        Write(PROMPT, 6, bias=(Bias("a", float("-inf"), 0, 3),)),
    ]
    # Without special tokens this tokenizer reads the same ids, which is what a prompt is known by.
    assert [model.write(draft).stored for draft in drafts] == [False, False, True, False, False]
    assert [model.write(draft).stored for draft in drafts] == [True] * 5
    # what decides nothing about the text is no part of the key
    assert model.write(
        Write(Prompt(PROMPT.text, {"exemplars": (0, 20), "question": (0, 5)}, ("n",)), 4)
    ).stored


def test_every_part_of_the_identity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, cache = tiny(), Cache()
    facts = lm.identity()
    assert {"weights_sha256", "dtype", "attention", "layer", "heads", "generation_config"} <= set(
        facts
    )
    assert {"torch", "transformers", "numpy", "dragin_lab", "tokenizer_sha256", "eos"} <= set(facts)
    serve_from(lm, cache).write(Write(PROMPT, 6))
    for name in facts:
        monkeypatch.setattr(lm, "identity", lambda name=name: facts | {name: "other"})
        assert not serve_from(lm, cache).write(Write(PROMPT, 6)).stored, name
    monkeypatch.undo()
    assert serve_from(lm, cache).write(Write(PROMPT, 6)).stored


# -- maps and batches ------------------------------------------------------------------------------


def test_a_map_is_kept() -> None:
    lm, cache = tiny(), Cache()
    model = serve_from(lm, cache)
    expected = lm.attend([9, 8, 7, 6])
    for _ in range(2):
        results = model.attend([9, 8, 7, 6])
        np.testing.assert_allclose(results, expected, atol=CLOSE)
        results[:] = 0.0  # the taker's own
    assert len(cache) == 1
    assert model.attend([]).shape == (4, 0, 0)


def test_a_batch_is_served_before_it_writes() -> None:
    lm, cache = tiny(), Cache()
    model = serve_from(lm, cache)
    drafts = [Write(Prompt(f"{lm_tiny.PROMPT} {i}"), 8) for i in range(3)]
    alone = model.write(drafts[0])
    first = written(model.batch(2), drafts)
    assert [output.stored for output in first] == [True, False, False]
    identical(alone, first[0])
    again = written(model.batch(2), [replace(draft, max_new_tokens=5) for draft in drafts])
    assert [output.stored for output in again] == [True, True, True]
    for output, before in zip(again, first, strict=True):
        assert output.ids.tolist() == before.ids[:5].tolist()
    assert model.write(drafts[1]).stored
    far = Write(Prompt("a " * 3000), 8)
    assert isinstance(written(model.batch(2), [drafts[0], far])[1], Exception)
