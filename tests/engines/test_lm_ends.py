"""End marks: all of a model's, found by themselves, in no text, whatever its vocabulary calls
special.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import lm_tiny
import pytest
import torch
import transformers as tf

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.trace.trace import Prompt
from dragin_lab.views.episodes import read_again

#: Chat templates in the manner of five families: how a turn is written, and what ends it.
FAMILIES = {
    "llama-3": ("<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>", "<|eot_id|>"),
    "gemma-3": ("<start_of_turn>{role}\n{content}<end_of_turn>\n", "<end_of_turn>"),
    "chatml": ("<|im_start|>{role}\n{content}<|im_end|>\n", "<|im_end|>"),
    "phi-4": ("<|im_start|>{role}<|im_sep|>{content}<|im_end|>", "<|im_end|>"),
    "mistral": (" {content}</s>", "</s>"),
}
MARKS = (
    "<|im_start|>",
    "<|im_sep|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<start_of_turn>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|im_end|>",
    "</s>",
)


def template_of(turn: str) -> str:
    """A Jinja template that writes every turn like this."""
    before, _, after = turn.partition("{content}")
    before = before.replace("{role}", "{{ m['role'] }}")
    return f"{{% for m in messages %}}{before}{{{{ m['content'] }}}}{after}{{% endfor %}}"


@cache
def tokenizer(
    family: str = "", *, special: bool = True, eos: str | None = None
) -> tf.PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows all marks, as special tokens or as plain ones."""
    hf = tf.PreTrainedTokenizerFast(
        tokenizer_object=lm_tiny.spelling(MARKS, special), eos_token=eos
    )
    if family:
        hf.chat_template = template_of(FAMILIES[family][0])
    return hf


@pytest.mark.parametrize("family", list(FAMILIES))
def test_what_closes_a_turn_of_the_chat_template_ends_a_text(family: str) -> None:
    assert HFTokenizer(tokenizer(family)).end_marks == (FAMILIES[family][1],)


def test_every_end_of_the_generation_config_counts_beside_the_tokenizers_own() -> None:
    ends = [MARKS.index(mark) for mark in ("<|eom_id|>", "<|end_of_text|>")]
    marks = HFTokenizer(tokenizer("llama-3", eos="</s>"), ends).end_marks
    assert set(marks) == {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>"}
    assert list(marks) == sorted(marks, key=lambda mark: -len(mark))


def test_a_template_that_refuses_or_drops_the_assistants_turn_ends_nothing() -> None:
    for template in (
        "{{ raise_exception('no') }}",
        "{% for m in messages %}{{ '<|im_end|>' }}{% endfor %}",
    ):
        hf = tokenizer.__wrapped__()
        hf.chat_template = template
        assert HFTokenizer(hf).end_marks == ()


@pytest.mark.parametrize("special", [True, False], ids=["special", "plain"])
def test_no_decoded_text_holds_an_end_mark(special: bool) -> None:
    wrapped = HFTokenizer(tokenizer("gemma-3", special=special))
    ids = wrapped.encode("It is Bo.", special=False)
    (end,) = wrapped.ends
    assert wrapped.decode([*ids, end], special=False) == "It is Bo."
    assert wrapped.decode([*ids, end], special=True) == "It is Bo.<end_of_turn>"
    text, spans = wrapped.spans().all([*ids, end])
    assert (text, spans[-1]) == ("It is Bo.", (9, 9))


class Closing(torch.nn.Module):
    """Makes a model write one mark and nothing else."""

    def __init__(self, mark: int, size: int) -> None:
        super().__init__()
        self.register_buffer(
            "logits", torch.nn.functional.one_hot(torch.tensor(mark), size).float() * 50
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*hidden.shape[:-1], -1)


def closing(mark: str, *, special: bool) -> LanguageModel:
    """A model that closes its turn at once, with a mark that its generation config does not
    name.
    """
    hf = tokenizer("gemma-3", special=special)
    config = tf.LlamaConfig(vocab_size=len(hf), **lm_tiny._SMALL)
    config.bos_token_id, config.eos_token_id, config.max_position_embeddings = None, None, 2048
    model = tf.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.eos_token_id = MARKS.index("</s>")
    model.lm_head = Closing(MARKS.index(mark), len(hf))
    return LanguageModel(model, hf, check=False)


@pytest.mark.parametrize("special", [True, False], ids=["special", "plain"])
@pytest.mark.parametrize("mark", ["<end_of_turn>", "</s>"])
def test_a_draft_ends_at_any_end_mark_and_its_text_is_without(mark: str, special: bool) -> None:
    lm = closing(mark, special=special)
    write = Write(Prompt("Question: Who made it?"), 8)
    for draft in (lm.write(write), *lm_tiny.written(lm.batch(2), [write, write])):
        assert (draft.stopped, draft.text, draft.raw_text, len(draft)) == ("eos", "", mark, 1)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_no_answer_holds_an_end_mark(variant: str) -> None:
    lab = dl.Lab(closing("<end_of_turn>", special=False), retriever=lambda query, k: [])
    trace = lab.ask("Who made it?", "dragin", variant=variant, threshold=0.1)
    assert trace.answer == ""
    assert ("<end_of_turn>" in trace.text) == (variant == "reference")


QUESTION = "Who is the mother of the director of film Elm Road?"
#: Every way in which a model is given a text.
READS: dict[str, Callable[[LanguageModel], Any]] = {
    "alone": lambda lm: lm.write(Write(Prompt(QUESTION), 4)),
    "batch": lambda lm: lm_tiny.written(
        lm.batch(2), [Write(Prompt(QUESTION[i:]), 4) for i in (0, 9)]
    ),
    "score": lambda lm: lm.score(Prompt(QUESTION), " It is."),
    "score many": lambda lm: lm.score_many([Prompt(QUESTION), Prompt("Who?")], [5, 6]),
    "read again": lambda lm: read_again(QUESTION, "It is Bo.", lm),
    "paper": lambda lm: ask(lm, "paper"),
    "reference": lambda lm: ask(lm, "reference"),
}


def ask(lm: LanguageModel, variant: str) -> None:
    """Ask and attribute, with a method that retrieves at once."""
    lab = dl.Lab(lm, retriever=lambda query, k: ["Ann Lee was born in Ulm."])
    options = {"variant": variant, "threshold": 0.0, "max_new_tokens": 8}
    list(lab.ask_many([QUESTION, "Who?"], "dragin", batch_size=2, **options))
    lab.attribute(lab.ask(QUESTION, "dragin", **options))


@pytest.mark.parametrize("made", ["template", "template with BOS", "flag"])
@pytest.mark.parametrize("way", list(READS))
def test_no_text_that_a_model_is_given_ends_where_its_tokenizer_closes_it(
    way: str, made: str
) -> None:
    if made == "template":
        hf = lm_tiny.closing(lm_tiny.byte_level())
    elif made == "template with BOS":
        hf = lm_tiny.closing(lm_tiny.byte_fallback())
    else:
        hf = copy.deepcopy(lm_tiny.byte_level())
        hf.add_eos_token = True
    assert hf(QUESTION)["input_ids"][-1] == hf.eos_token_id
    lm = LanguageModel(small_model(len(hf)), hf, check=False)
    last: list[int] = []

    def listen(_: Any, args: Any) -> None:
        last.extend(args[0][:, -1].tolist() if args[0].shape[1] > 1 else [])  # (b, q)

    lm.model.get_input_embeddings().register_forward_pre_hook(listen)
    READS[way](lm)
    assert last
    assert hf.eos_token_id not in last


def small_model(size: int) -> Any:
    """A tiny Llama that never writes its EOS."""
    torch.manual_seed(0)
    config = tf.LlamaConfig(vocab_size=size, **lm_tiny._SMALL | {"max_position_embeddings": 2048})
    config.bos_token_id, config.eos_token_id = 1, 2
    model = tf.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        model.lm_head.weight[2] = 0
    return model
