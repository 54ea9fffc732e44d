"""The chat layout on rendered chat templates: turns, named spans, no second BOS, and what is
refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import lm_tiny
import pytest
import transformers as tf
from scripted import ScriptedRetriever
from tokenizers import processors

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.tokenizer import HFTokenizer
from dragin_lab.errors import SettingError
from dragin_lab.trace.trace import Passage, Prompt

#: Written here in the manner of four families: brackets and a BOS a turn; headers; ChatML; ChatML
#: with a system turn of its own, thoughts taken out of earlier turns, and a switch for thinking.
TEMPLATES = {
    "llama-2": (
        "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' +"
        " m['content'].strip() }}{{ ' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ ' ' +"
        " m['content'].strip() + ' ' + eos_token }}{% else %}{{ raise_exception('no such role')"
        " }}{% endif %}{% endfor %}"
    ),
    "llama-3": (
        "{{ bos_token }}{% for m in messages %}{{ '<|head|>' + m['role'] + '<|over|>\n\n' }}"
        "{{ m['content'] | trim }}{{ '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|head|>assistant<|over|>\n\n' }}{% endif %}"
    ),
    "chatml": (
        "{% for m in messages %}{{ '<|head|>' + m['role'] + '\n' + m['content'] + '<|end|>\n' }}{%"
        " endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant\n' }}{% endif %}"
    ),
    "qwen": (
        "{{ '<|head|>system\nYou are a careful assistant.<|end|>\n' }}{% for m in messages %}{% set"
        " text = m['content'].split('</think>')[-1].lstrip('\n') %}{{ '<|head|>' + m['role'] + '\n'"
        " + text + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant\n'"
        " }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n'"
        " }}{% endif %}{% endif %}"
    ),
}
ADDS_BOS = ("llama-2", "llama-3")
OPENINGS = {
    "llama-2": " [/INST]",
    "llama-3": "<|head|>assistant<|over|>\n\n",
    "chatml": "<|head|>assistant\n",
    "qwen": "<|head|>assistant\n<think>\n\n</think>\n\n",
}
ALL = pytest.mark.parametrize("kind", list(TEMPLATES))

SKY = Exemplar("Is the sky blue?", "It is.", "yes")
SEA = Exemplar("Is the sea red? ", " It is blue.", "no")
FOUND = (Passage("1", "Film", "A film."), Passage("2", "Book", "A book: naïve."))
TEMPLATE = PromptTemplate((SKY, SEA), instruction="Reason.\n", layout="chat")
LAST_TURN = (
    "Context:\n[1] A film.\n[2] A book: naïve.\nAnswer in the same format as"
    " before.\nReason.\nQuestion: Who made Ünü?"
)
TURNS = [
    {"role": "user", "content": "Question: Is the sky blue?"},
    {"role": "assistant", "content": "It is. So the answer is yes."},
    {"role": "user", "content": "Question: Is the sea red?"},
    {"role": "assistant", "content": "It is blue. So the answer is no."},
    {"role": "user", "content": LAST_TURN},
]


@cache
def tokenizer(kind: str) -> HFTokenizer:
    """A byte-level tokenizer with a chat template; in the Llama manner it puts a BOS before
    every text.
    """
    raw = lm_tiny.spelling(["<s>", "</s>", "<|head|>", "<|over|>", "<|end|>"])
    if kind in ADDS_BOS:
        raw.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    hf = tf.PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
    hf.chat_template = TEMPLATES.get(kind)
    return HFTokenizer(hf)


def model(kind: str) -> LanguageModel:
    config = tf.LlamaConfig(vocab_size=len(tokenizer(kind).hf), **lm_tiny._SMALL)
    config.bos_token_id, config.eos_token_id, config.max_position_embeddings = 0, 1, 2048
    return LanguageModel(tf.AutoModelForCausalLM.from_config(config).eval(), tokenizer(kind))


def ids_of(kind: str, prompt: Prompt) -> list[int]:
    return tokenizer(kind).encode_with_offsets(prompt.text, prompt.special)[0]


def render(
    kind: str, template: PromptTemplate = TEMPLATE, tail: str = "", **options: Any
) -> Prompt:
    return template.bound(tokenizer(kind)).render(
        "Who made Ünü?", tail, options.pop("passages", FOUND), **options
    )


@ALL
def test_a_prompt_is_what_the_chat_template_makes_of_its_turns_without_a_second_bos(
    kind: str,
) -> None:
    prompt = render(kind)
    hf = tokenizer(kind).hf
    options = {"add_generation_prompt": True, "enable_thinking": False}
    assert prompt.text == hf.apply_chat_template(TURNS, tokenize=False, **options)
    assert ids_of(kind, prompt) == hf.apply_chat_template(
        TURNS, tokenize=True, return_dict=False, **options
    )
    assert prompt.text.endswith(OPENINGS[kind])
    # there is no second BOS; Llama 2 opens every exchange with one
    ids = model(kind).write(Write(prompt, 2)).prompt_ids.tolist()
    assert ids == ids_of(kind, prompt)
    assert (ids[0] == 0) == (kind in ADDS_BOS)
    assert ids[1] != 0
    assert ids.count(0) == {"llama-2": 3, "llama-3": 1}.get(kind, 0)


@ALL
def test_parts_can_be_found_in_the_rendered_text(kind: str) -> None:
    prompt = render(kind, tail=" It was Bo")
    assert prompt.part("passages") == "[1] A film.\n[2] A book: naïve.\n"
    assert prompt.part("question") == "Who made Ünü?"
    assert prompt.part("answer") == (" It was Bo" if kind == "llama-2" else "It was Bo")
    assert prompt.text.endswith(OPENINGS[kind] + prompt.part("answer"))
    exemplars = prompt.part("exemplars")
    assert exemplars.startswith("Question: Is the sky blue?")
    assert exemplars.endswith("It is blue. So the answer is no.")
    assert prompt.text.count("naïve") == 1
    assert list(prompt.spans) == ["exemplars", "passages", "question", "answer"]
    ids, offsets = tokenizer(kind).encode_with_offsets(prompt.text, prompt.special)
    a, b = prompt.spans["passages"]
    inside = [i for i, (x, y) in zip(ids, offsets, strict=True) if y > a and x < b]
    assert tokenizer(kind).decode(inside, special=True) == prompt.part("passages")


@pytest.mark.parametrize("kind", ["llama-2", "llama-3", "chatml"])
def test_the_answer_so_far_opens_the_turn_of_the_assistant(kind: str) -> None:
    turns = [*TURNS, {"role": "assistant", "content": "It was Bo"}]
    going_on = tokenizer(kind).hf.apply_chat_template(
        turns, tokenize=False, continue_final_message=True
    )
    assert render(kind, tail=" It was Bo").text == going_on


def test_the_answer_so_far_is_kept_to_the_character_and_absent_parts_have_no_span() -> None:
    assert render("chatml", tail="It  was ").part("answer") == "It  was "
    assert render("llama-2", tail=" It  was ").text.endswith("[/INST] It  was ")
    assert list(
        render("llama-2", PromptTemplate(layout="chat"), tail="  ", passages=None).spans
    ) == ["question"]


@ALL
def test_forms_with_labels_open_the_turn_of_the_assistant_with_them(kind: str) -> None:
    shot = Exemplar("Who?", "Are follow up questions needed here: No.", "Bo")
    template = PromptTemplate((shot,), layout="chat", form="self-ask", preamble="Ask.\n")
    prompt = render(kind, template, tail=" Yes.")
    label = "Are follow up questions needed here:"
    assert f"{label} No.\nSo the final answer is: Bo." in prompt.part("exemplars")
    assert prompt.part("exemplars").startswith("Ask.\nQuestion: Who?")
    space = " " if kind == "llama-2" else ""
    assert prompt.text.endswith(f"{OPENINGS[kind]}{space}{label} Yes.")
    assert prompt.part("answer") == " Yes."


@pytest.mark.parametrize(
    ("kind", "name", "variant"),
    [
        ("qwen", "dragin", "paper"),
        ("llama-2", "fs-rag", "reference"),
        ("llama-3", "flare-instruct", "paper"),
    ],
)
def test_every_step_records_the_prompt_that_was_sent(kind: str, variant: str, name: str) -> None:
    lm = model(kind)
    chosen = dl.method(name, variant=variant, max_new_tokens=6)
    trace = dl.Lab(lm, retriever=ScriptedRetriever(), exemplars=TEMPLATE).ask(
        "Who made Ünü?", chosen
    )
    prompts = [p for s in trace.steps for p in (s.prompt, s.passages_prompt) if p is not None]
    assert trace.ended != "error"
    assert prompts
    for prompt in prompts:
        assert not prompt.special
        assert OPENINGS[kind] in prompt.text
        assert prompt.part("question") == "Who made Ünü?"
    assert trace.provenance["template"]["layout"] == "chat"
    for output, prompt in ((s.draft, s.prompt) for s in trace.steps):
        if output is not None and prompt is not None:
            assert output.prompt_ids.tolist() == ids_of(kind, prompt)


def test_a_model_without_a_chat_template_is_refused_before_anything_is_generated() -> None:
    lab = dl.Lab(model("none"), exemplars=TEMPLATE)
    with pytest.raises(
        SettingError, match="needs the model's chat template, and its tokenizer has none"
    ):
        lab.stream("Who?", dl.method("wo-rag"))


def test_a_template_that_refuses_the_turns_says_why() -> None:
    hf = tokenizer("llama-2").hf
    with pytest.raises(SettingError, match=r"refuses the prompt \(no such role\)"):
        tokenizer("llama-2").chat([("judge", "?")])
    broken = tf.PreTrainedTokenizerFast(tokenizer_object=hf.backend_tokenizer, bos_token="<s>")
    broken.chat_template = "{% for m in messages %}{{ m["
    with pytest.raises(SettingError, match="the chat template refuses the prompt"):
        TEMPLATE.bound(HFTokenizer(broken))


@pytest.mark.parametrize(
    "template", ["{{ messages[-1].content[:12] }}", "{{ messages[-1].content * 2 }}"]
)
def test_a_template_that_drops_or_repeats_a_part_is_refused(template: str) -> None:
    odd = tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer("chatml").hf.backend_tokenizer)
    odd.chat_template = template
    with pytest.raises(SettingError, match="leaves out or repeats a part"):
        TEMPLATE.bound(HFTokenizer(odd)).render("Who made it?", "", FOUND)


def test_an_unbound_template_says_what_to_do() -> None:
    with pytest.raises(SettingError, match=r"use template\.bound\(lm\.tokenizer\)"):
        TEMPLATE.render("Who?")
    assert TEMPLATE.bound(tokenizer("chatml")) == TEMPLATE
    plain = PromptTemplate()
    assert plain.bound(tokenizer("none")) is plain
