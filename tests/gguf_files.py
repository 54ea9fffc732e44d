"""Write a Llama, Mistral, Qwen 2 or 3, or Gemma 3 as a GGUF file in float32, as llama.cpp's
converter does.

The weights are exact, so a server that computes in float32 gives the model's own numbers. The
vocabulary is written for ids to become text; a server that makes ids of text with it may make
others, which is why dragin_lab sends ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
# by model_type, where they have another name
_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}
_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(
    path: Path,
    model: Any,
    tokenizer: Tokenizer,
    *,
    architecture: str = "",
    pre: str = "default",
) -> Path:
    """Write a model of transformers and its tokenizer, float32. ``pre`` names how texts are split
    before byte-level BPE. Returns ``path``.
    """
    import gguf

    config = model.config
    architecture = architecture or _ARCHITECTURES.get(config.model_type, config.model_type)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    if rope["rope_type"] == "llama3":
        turns = model.model.rotary_emb.inv_freq.numpy()  # (r,)
        plain = rope["rope_theta"] ** -(np.arange(len(turns)) / len(turns))
        writer.add_tensor("rope_freqs.weight", (plain / turns).astype(np.float32))
    writer.add_vocab_size(config.vocab_size)
    _add_vocabulary(writer, json.loads(tokenizer.to_str()), config, pre)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if architecture == "llama":
            values = _in_order(name, values, config)
        elif architecture == "gemma3" and values.ndim == 1:
            values = values + 1  # transformers adds it to the weights of norms
        writer.add_tensor(_name(name, architecture), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: Any, tokenizer: dict[str, Any], config: Any, pre: str) -> None:
    """Add the vocabulary of a ``tokenizer.json``: of byte-level BPE with its merges, of Unigram
    with its scores.
    """
    from gguf import TokenType

    model = tokenizer["model"]
    byte_level = model["type"] == "BPE"
    scores: dict[str, float] = (
        dict.fromkeys(model["vocab"], 0.0) if byte_level else dict(map(tuple, model["vocab"]))
    )
    ids = model["vocab"] if byte_level else {token: i for i, token in enumerate(scores)}
    tokens = [f"<unused {i}>" for i in range(config.vocab_size)]
    types = [TokenType.UNUSED] * len(tokens)
    for token, number in ids.items():
        tokens[number] = token
        types[number] = (
            TokenType.BYTE if token.startswith("<0x") and not byte_level else TokenType.NORMAL
        )
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2" if byte_level else "llama")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if byte_level:
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    else:
        writer.add_token_scores([scores.get(token, -1e4) for token in tokens])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(int(np.ravel(config.eos_token_id)[0]))


def _name(name: str, architecture: str) -> str:
    module, _, kind = name.rpartition(".")  # kind is "weight" or "bias"
    if module in _OUTSIDE:
        return f"{_OUTSIDE[module]}.{kind}"
    _, _, number, inner = module.split(".", 3)
    names = _LAYER | (_GEMMA if architecture == "gemma3" else {})
    return f"blk.{number}.{names[inner]}.{kind}"


def _in_order(name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """llama.cpp turns neighbouring pairs where transformers turns halves, so its rows of a head
    are interleaved.
    """
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
