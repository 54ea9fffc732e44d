"""GGUF files as llama.cpp's converter writes them, of tiny models with byte-level vocabularies."""

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
}
_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path: Path, model: Any, tokenizer: Tokenizer, *, architecture: str = "llama", end: int = 2) -> Path:
    """A Llama and its byte-level tokenizer, float32; ``end`` is the id of its end mark."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    written = json.loads(tokenizer.to_str())
    tokens = [f"<unused {i}>" for i in range(config.vocab_size)]
    for token, number in written["model"]["vocab"].items():
        tokens[number] = token
    for added in written["added_tokens"]:
        tokens[added["id"]] = added["content"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL if i > end else gguf.TokenType.CONTROL for i in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in written["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(end)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        writer.add_tensor(_name(name), _in_order(name, weight.float().numpy(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _name(name: str) -> str:
    module = name.removesuffix(".weight")
    if module in _OUTSIDE:
        return f"{_OUTSIDE[module]}.weight"
    _, _, number, inner = module.split(".", 3)
    return f"blk.{number}.{_LAYER[inner]}.weight"


def _in_order(name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """llama.cpp turns neighbouring pairs where transformers turns halves, so its rows of a head are interleaved."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
