"""Tiny random models of many architectures and two small tokenizers, made in memory from a seed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from dragin_lab.core.episode import Stop, Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Draft, Trace

PARITY = Path(__file__).parents[1] / "parity" / "models"
PROMPT = "Question: Who is the mother of the director of Elm Road?\nAnswer:"
GAP = 1e-4  # nats between the two likeliest tokens; float32 rounding comes to 1e-5
# float32: two roundings more or less in each product of a tiny model come to 3e-5 at most
CLOSE = 5e-5
# float16 rows of attention, up to 1: a difference far below a step can fall on two sides of a
# rounding
HALF = 5e-4
WINDOW = 12  # of the sliding layers: smaller than the prompt

_SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
}
_INIT = {"initializer_range": 0.3}
_MIXED = ["sliding_attention", "full_attention"] * 2
_MHA = {k: v for k, v in _SMALL.items() if k != "num_key_value_heads"}

_LATENT = ("hidden_size", "intermediate_size", "num_attention_heads", "initializer_range")
_LATENT += ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
_SPARSE: dict[str, Any] = {
    **_SMALL | {"num_key_value_heads": 4, "initializer_range": 0.12},
    "n_group": 1,
    "topk_group": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "index_topk": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
}
CONFIGS: dict[str, Any] = {
    "llama": lambda v: tf.LlamaConfig(vocab_size=v, **_SMALL),
    "mistral": lambda v: tf.MistralConfig(vocab_size=v, sliding_window=WINDOW, **_SMALL),
    "qwen2": lambda v: tf.Qwen2Config(vocab_size=v, **_SMALL),
    "qwen3": lambda v: tf.Qwen3Config(vocab_size=v, head_dim=8, **_SMALL),
    "gemma2": lambda v: tf.Gemma2Config(vocab_size=v, head_dim=8, sliding_window=WINDOW, **_SMALL),
    "gemma3": lambda v: tf.Gemma3TextConfig(
        vocab_size=v, head_dim=8, sliding_window=WINDOW, layer_types=_MIXED, **_SMALL
    ),
    "phi3": lambda v: tf.Phi3Config(vocab_size=v, pad_token_id=0, **_SMALL),
    "gpt-neox": lambda v: tf.GPTNeoXConfig(vocab_size=v, **_MHA),
    "opt": lambda v: tf.OPTConfig(
        vocab_size=v,
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=256,
        init_std=0.3,
    ),
    "olmo2": lambda v: tf.Olmo2Config(vocab_size=v, **_SMALL),
    "gpt2": lambda v: tf.GPT2Config(
        vocab_size=v, n_embd=32, n_layer=4, n_head=4, n_positions=256, **_INIT
    ),
    "gpt-oss": lambda v: tf.GptOssConfig(
        vocab_size=v,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=WINDOW,
        layer_types=_MIXED,
        **_SMALL,
    ),
    "falcon": lambda v: tf.FalconConfig(
        vocab_size=v,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        initializer_range=0.3,
    ),
    "bloom": lambda v: tf.BloomConfig(
        vocab_size=v, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.3
    ),
    "gpt_neo": lambda v: tf.GPTNeoConfig(
        vocab_size=v,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=256,
        window_size=WINDOW,
        initializer_range=0.3,
    ),
    "diffllama": lambda v: tf.DiffLlamaConfig(vocab_size=v, **_SMALL),
    "cohere2": lambda v: tf.Cohere2Config(
        vocab_size=v, sliding_window=WINDOW, layer_types=_MIXED, **_SMALL
    ),
    "deepseek-v3": lambda v: tf.DeepseekV3Config(
        vocab_size=v,
        **_SMALL | {"num_key_value_heads": 4},
        moe_intermediate_size=16,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
    ),
    "glm4": lambda v: tf.Glm4Config(vocab_size=v, head_dim=8, pad_token_id=0, **_SMALL),
    "llama4": lambda v: tf.Llama4TextConfig(
        vocab_size=v,
        head_dim=8,
        intermediate_size_mlp=48,
        num_local_experts=2,
        attention_chunk_size=WINDOW,
        **_SMALL,
    ),
    "mixtral": lambda v: tf.MixtralConfig(
        vocab_size=v, num_local_experts=2, num_experts_per_tok=1, **_SMALL
    ),
    "jamba": lambda v: tf.JambaConfig(
        vocab_size=v,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        num_experts_per_tok=1,
        mamba_d_state=4,
        use_mamba_kernels=False,
        **_SMALL,
    ),
    "qwen3-next": lambda v: tf.Qwen3NextConfig(
        vocab_size=v,
        head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"] * 2,
        **_SMALL,
    ),
    "lfm2": lambda v: tf.Lfm2Config(
        vocab_size=v, layer_types=["conv", "full_attention"] * 2, block_multiple_of=8, **_SMALL
    ),
    "granite-hybrid": lambda v: tf.GraniteMoeHybridConfig(
        vocab_size=v,
        layer_types=["mamba", "attention"] * 2,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        num_local_experts=0,
        shared_intermediate_size=32,
        embedding_multiplier=1.0,
        **_SMALL,
    ),
    "falcon-h1": lambda v: tf.FalconH1Config(
        vocab_size=v,
        head_dim=8,
        mamba_d_ssm=64,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        **_SMALL,
    ),
    "zamba": lambda v: tf.ZambaConfig(
        vocab_size=v,
        layers_block_type=["mamba", "hybrid"] * 2,
        mamba_d_state=8,
        n_mamba_heads=2,
        num_key_value_heads=4,
        use_mamba_kernels=False,
        **_MHA,
    ),
    "deepseek-v32": lambda v: tf.DeepseekV32Config(vocab_size=v, **_SPARSE),
    "glm-dsa": lambda v: tf.GlmMoeDsaConfig(vocab_size=v, **_SPARSE),
    "longcat": lambda v: tf.LongcatFlashConfig(
        vocab_size=v,
        **{name: value for name, value in _SPARSE.items() if name in _LATENT},
        num_layers=2,
        ffn_hidden_size=48,
        expert_ffn_hidden_size=16,
        n_routed_experts=4,
        zero_expert_num=1,
        moe_topk=2,
        head_dim=8,
    ),
    "nemotron-h": lambda v: tf.NemotronHConfig(
        vocab_size=v,
        head_dim=8,
        mamba_num_heads=4,
        mamba_head_dim=8,
        ssm_state_size=8,
        n_groups=1,
        chunk_size=16,
        layers_block_type=["mamba", "attention", "mlp", "attention"],
        **_SMALL,
    ),
    "zamba2": lambda v: tf.Zamba2Config(
        vocab_size=v,
        mamba_d_state=8,
        mamba_headdim=8,
        n_mamba_heads=8,
        mamba_ngroups=1,
        layers_block_type=["mamba", "hybrid"] * 2,
        hybrid_layer_ids=[1, 3],
        num_mem_blocks=2,
        adapter_rank=8,
        attention_hidden_size=64,
        attention_head_dim=16,
        **_SMALL | {"num_key_value_heads": 4},
    ),
    "mamba": lambda v: tf.MambaConfig(
        vocab_size=v, hidden_size=32, num_hidden_layers=2, state_size=4, **_INIT
    ),
    "rwkv": lambda v: tf.RwkvConfig(
        vocab_size=v, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32
    ),
    "minimax": lambda v: tf.MiniMaxConfig(
        vocab_size=v,
        head_dim=8,
        block_size=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        layer_types=["linear_attention", "full_attention"] * 2,
        **_SMALL,
    ),
}
REGISTRY = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt-neox",
    "opt",
    "olmo2",
    "gpt2",
    "gpt-oss",
)
#: Beside the attention, some keep a state that is overwritten with each token.
HYBRIDS = ("jamba", "qwen3-next", "lfm2", "granite-hybrid", "falcon-h1")
FURTHER = ("diffllama", "cohere2", "deepseek-v3", "glm4", "llama4", "mixtral", *HYBRIDS)
#: Their files look no attention function up by its name.
BYPASS = ("falcon", "bloom", "gpt_neo", "zamba")
#: One of each way to attend: rotary, with a soft cap and a window, with sinks, by learned
#: positions, past the registry.
TELLING = ("llama", "gemma2", "gpt-oss", "gpt2", "falcon", "diffllama", "jamba", "deepseek-v32")


def matrix(*kinds: str) -> pytest.MarkDecorator:
    """Parametrizes ``kind``; what differs from the telling ones in its model file alone is left
    to the slow tier.
    """
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "kind", [k if k in TELLING else pytest.param(k, marks=slow) for k in kinds]
    )


_TEXT = [
    (
        "Question: Who is the mother of the director of film Elm Road?\nAnswer: The film Elm Road"
        " was directed by Ann Lee."
    ),
    (
        "Ann Lee was born in the city of Ulm in the year 1946. So the answer is Ulm. Naïve café,"
        " 東京, 你好, 🙂."
    ),
]


@cache
def byte_level() -> Any:
    """A byte-level BPE tokenizer that adds no special token."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        _TEXT,
        trainers.BpeTrainer(
            vocab_size=340,
            special_tokens=["<pad>", "<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


@cache
def byte_fallback() -> Any:
    """A tokenizer in Llama-2's style: a space mark put before the text, bytes for what is
    unknown, BOS added.
    """
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{b:02X}>": 3 + b for b in range(256)}}
    merges: list[tuple[str, str]] = []
    for letter in "▁abcdefghijklmnopqrstuvwxyzABC.?!,0123456789é東":
        vocab[letter] = len(vocab)
    for pair in (
        ("▁", "t"),
        ("h", "e"),
        ("▁t", "he"),
        ("▁", "a"),
        ("a", "n"),
        ("▁", "▁"),
        ("i", "s"),
    ):
        vocab["".join(pair)] = len(vocab)
        merges.append(pair)
    raw = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    raw.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def closing(hf: Any) -> Any:
    """A copy of a tokenizer that puts its EOS after each text, and still before it what it did."""
    closed = copy.deepcopy(hf)
    before = [mark for mark in [hf.bos_token] if hf("a")["input_ids"][0] == hf.bos_token_id]
    marks = [(mark, hf.convert_tokens_to_ids(mark)) for mark in [*before, hf.eos_token]]
    closed.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join([*before, "$A", hf.eos_token]), special_tokens=marks
    )
    return closed


def spelling(marks: Sequence[str], special: bool = True) -> Tokenizer:
    """A byte-level tokenizer that knows some marks, special or plain ones, and else every byte
    by itself.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({token: i for i, token in enumerate([*marks, *letters])}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in marks])
    return raw


def sampling(**settings: Any) -> LanguageModel:
    """A tiny model that draws its tokens as these settings of its generation config say."""
    model = build("llama")
    model.generation_config.update(do_sample=True, eos_token_id=None, **settings)
    return LanguageModel(model, byte_level(), sample=True, check=False)


def tiny(kind: str = "llama", **options: Any) -> LanguageModel:
    """A tiny random model that never ends by itself; its checks pass (test_lm_architectures.py),
    and take long.
    """
    lm = LanguageModel(build(kind), byte_level(), check=False, **options)
    lm.eos = frozenset()
    return lm


def refused(source: Any, match: str, **options: Any) -> None:
    """The source is refused, in a line."""
    with pytest.raises(ModelError, match=match) as caught:
        LanguageModel.load(source, **options)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


def settled(output: Draft) -> None:
    """Each token is likelier than the next one by more than rounding can turn, so every
    processor chooses it.
    """
    probs = output.alternative_probs.astype(np.float64)  # (n, k)
    gap = np.log(probs[:, 0]) - np.log(probs[:, 1])  # (n,) nats
    assert gap.min() > GAP, (
        "choose another prompt: on another processor another token may be the likeliest here"
    )


def alike(a: Draft, b: Any, close: float = CLOSE, half: float = HALF) -> None:
    """Two continuations have the same tokens, and what was measured on them differs by rounding
    alone.

    Kernels sum in an order that depends on the processor, on threads and on shapes: what is
    computed twice is the same to a tolerance, and only what is read again from where it was written
    is the same to the bit.
    """
    assert isinstance(b, Draft), b
    settled(a)
    skipped = ("seconds", "reused", "stored", "alternative_ids", "alternative_tokens")
    for name in (field.name for field in fields(Draft) if field.name not in skipped):
        _alike(
            name,
            getattr(a, name),
            getattr(b, name),
            {"rows": half, "states": 1e-4}.get(name, close),
        )


def _alike(name: str, one: Any, two: Any, atol: float) -> None:
    if not isinstance(one, np.ndarray):
        assert one == two, name
    elif one.dtype.kind == "f":
        assert one.dtype == two.dtype
        np.testing.assert_allclose(one, two, atol=atol, err_msg=name)
    else:
        np.testing.assert_array_equal(one, two, err_msg=name)


@dataclass(frozen=True)
class After(Stop):
    """Stops behind some tokens; reads attention behind each token (1), behind every second (2),
    or behind none (0).
    """

    tokens: int
    looks: int = 0

    @property
    def measured(self) -> bool:
        return self.looks > 0

    def reached(self, so_far: Draft) -> str | None:
        if self.looks and len(so_far.ids) % self.looks == 0:
            assert len(so_far.received) == len(so_far.ids)
        return "enough" if len(so_far.ids) >= self.tokens else None


def written(
    batch: Any, drafts: Sequence[Write], seeds: Sequence[int | None] | None = None
) -> list[Any]:
    """Everything a batch answers, in the order of the drafts; then it is closed."""
    for key, draft in enumerate(drafts):
        batch.ask(key, draft, None if seeds is None else seeds[key])
    answers: dict[int, Any] = {}
    while len(batch):
        for key, continuation in batch.step():
            assert key not in answers
            answers[key] = continuation
    batch.close()
    return [answers[key] for key in range(len(drafts))]


def drained(stream: Any) -> tuple[list[Draft], Draft]:
    """The events of a stream, and what it returns."""
    events = []
    while True:
        try:
            events.append(next(stream))
        except StopIteration as end:
            return events, end.value


def decisions(trace: Trace) -> list[Any]:
    """What was decided in each step, and where."""
    steps = [step.decision for step in trace.steps if step.decision is not None]
    return [(one.retrieve, one.cut, one.token, one.sentence) for one in steps]


def own_text(kind: str, ids: Sequence[int], n: int) -> list[int]:
    """What a fresh model's own ``generate`` writes after some ids."""
    text = build(kind).generate(
        torch.tensor([[int(i) for i in ids]]), max_new_tokens=n, do_sample=False
    )
    written: list[int] = text[0, len(ids) :].tolist()
    return written


def config_of(kind: str) -> Any:
    """The config of a tiny model; ids 0, 1, 2 are pad, BOS and EOS."""
    config = CONFIGS[kind](len(byte_level()))
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, 1, 2
    return config


def build(kind: str, seed: int = 0, **options: Any) -> Any:
    """A tiny random float32 model in eval mode; the same weights for the same seed, whatever the
    attention.
    """
    torch.manual_seed(seed)
    model = tf.AutoModelForCausalLM.from_config(
        config_of(kind), dtype=torch.float32, **options
    ).eval()
    torch.manual_seed(seed + 1)
    for name, weight in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(weight)
    return model
