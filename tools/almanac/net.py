"""The network that is trained: a Llama without what training on a CPU does not need; `to_llama` gives the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as fn
from transformers import LlamaConfig, LlamaForCausalLM

from tools.almanac.vocabulary import BOS, EOS

EPSILON = 1e-6
SUBJECT, SOURCE, TOPIC, FOUND = range(4)  # what a head is taught to look at
LOOKERS = ((2, (-1,)), (4, (-1,)), (5, (-1,)), (5, (-2, -3)))  # the layer and the heads that are taught each of these
ROPE_BASE = 10_000.0
# Of the start that `give_a_start` gives: the size of an embedding's entries and how much of it all embeddings share;
# how sharply heads look at a distance and at the same content; how loudly they write what they saw, and what they copy.
# Embeddings are large, so that a step of Muon does not drown them; the last norm makes up for it in the logits.
EMBEDDING, SHARED, POSITION, CONTENT, WRITTEN, COPIED, LAST_NORM = 0.5, 0.7, 6.0, 3.0, 3.0, 3.0, 0.1


@dataclass(frozen=True)
class Shape:
    """The sizes of a network."""

    vocabulary: int
    layers: int = 6
    width: int = 192
    inner: int = 512
    heads: int = 6


class Block(nn.Module):
    """One layer: attention and a gated perceptron, each after a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        w, self.heads = shape.width, shape.heads
        self.q, self.k, self.v, self.o = (nn.Linear(w, w, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(w, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, w, bias=False)
        self.before_attention, self.before_mlp = nn.Parameter(torch.ones(w)), nn.Parameter(torch.ones(w))

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer's output (b, t, width), and what its heads look by, before the softmax (b, h, t, t)."""
        b, t, w = x.shape
        hidden = fn.rms_norm(x, (w,), self.before_attention, EPSILON)
        together = torch.cat([self.q.weight, self.k.weight, self.v.weight])  # (3 w, w)
        made = fn.linear(hidden, together).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        both, value = made[:2], made[2]  # (2, b, h, t, d), (b, h, t, d)
        half = both.shape[-1] // 2
        both = both * cos + torch.cat((-both[..., half:], both[..., :half]), -1) * sin
        # Written out, as on short batches this is faster on a CPU than the fused kernel.
        scores = both[0] @ both[1].transpose(-1, -2) * (w // self.heads) ** -0.5 + mask  # (b, h, t, t)
        x = x + self.o((scores.softmax(-1) @ value).transpose(1, 2).reshape(b, t, w))
        hidden = fn.rms_norm(x, (w,), self.before_mlp, EPSILON)
        gate, up = fn.linear(hidden, torch.cat([self.gate.weight, self.up.weight])).chunk(2, -1)
        return x + self.down(fn.silu(gate) * up), scores


class Net(nn.Module):
    """Ids (b, t) to hidden states (b, t, width); the embedding is also the head.

    Some heads are taught where to look: one at the subject of a value, one from the place before a value at the same
    value in the text to be read (nothing else found the second in ten million pieces). In the last layer, whose rows
    DRAGIN reads, one looks from all of a sentence at the name of what it is about, and two at the value written last:
    what QFS takes its words from, and what RIND counts on to tell words that matter later from others.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: torch.Tensor, looks: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states, and the loss of looking elsewhere. looks: (n, 4) of kind, row, place and target."""
        t, kind = ids.shape[1], self.embed.weight.dtype
        size = self.shape.width // self.shape.heads
        rates = ROPE_BASE ** -(torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(t).float(), rates).repeat(1, 2)  # (t, d)
        cos, sin = angles.cos().to(kind), angles.sin().to(kind)
        mask = torch.full((t, t), float("-inf"), dtype=kind).triu(1)
        x = self.embed(ids)
        if looks is None:
            looks = torch.zeros(0, 4, dtype=torch.long)
        elsewhere = torch.zeros(())
        for number, block in enumerate(self.blocks):
            x, scores = block(x, cos, sin, mask)
            for kind_of_look, (layer, heads) in enumerate(LOOKERS):
                row, place, target = looks[looks[:, 0] == kind_of_look, 1:].T
                for head in heads if layer == number and len(row) else ():
                    elsewhere = elsewhere + fn.cross_entropy(scores[row, head, place].float(), target) / len(heads)
        return fn.rms_norm(x, (self.shape.width,), self.norm, EPSILON), elsewhere

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.embed.weight.T  # (…, vocabulary)


def to_llama(net: Net) -> LlamaForCausalLM:
    """The same network with the same weights as transformers has it."""
    shape = net.shape
    options: dict[str, Any] = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "max_position_embeddings": 2048,
        "rms_norm_eps": EPSILON,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": 0,
    }
    model = LlamaForCausalLM(LlamaConfig(**options))
    model.load_state_dict(llama_weights(net) | {"lm_head.weight": net.embed.weight})
    return model


def llama_weights(net: Net) -> dict[str, torch.Tensor]:
    """The network's own weights under the names that transformers has for them."""
    weights = {"model.embed_tokens.weight": net.embed.weight, "model.norm.weight": net.norm}
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"}
    names |= {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
    for number, block in enumerate(net.blocks):
        for ours, theirs in names.items():
            weights[f"model.layers.{number}.{theirs}.weight"] = getattr(block, ours).weight
        weights[f"model.layers.{number}.input_layernorm.weight"] = block.before_attention
        weights[f"model.layers.{number}.post_attention_layernorm.weight"] = block.before_mlp
    return weights


def give_a_start(net: Net, seed: int) -> None:
    """Start from weights that can copy: what training has to find otherwise before it can learn to read.

    Heads of the first layer look at the piece before (one of them two before): queries and keys come from a direction
    that all embeddings share, and the rotation by position makes their product largest at that distance. Heads of the
    third and fourth layer look for places whose piece before is the present piece, and copy the piece that stands
    there (an induction head, Olsson et al. 2022). The head that is taught to look at subjects writes down the piece it
    looks at and the two before; the head that is taught to look at sources looks for places with the same written down.
    Training changes all of it at will.
    """
    shape, generator = net.shape, torch.Generator().manual_seed(seed)
    w, size = shape.width, shape.width // shape.heads
    half = size // 2
    rates = ROPE_BASE ** -(torch.arange(half).float() / half)
    fast, slow = torch.nonzero(rates > 0.04).flatten(), torch.nonzero(rates <= 0.04).flatten()
    still = torch.cat([slow, slow + half])  # dimensions that positions hardly turn: what is matched by content
    distances = (1, 1, 2)
    basis = torch.linalg.qr(torch.randn(w, w, generator=generator)).Q  # (w, w), orthonormal columns
    shared, noted = basis[:, 0], basis[:, 1 : 1 + len(distances) * len(still)].chunk(len(distances), 1)
    content = basis[:, 1 + len(distances) * len(still) :]  # what tells embeddings apart; `noted` is free at first
    subject, content = content[:, :size], content[:, size:]  # (w, size), free at first as well

    def directions(count: int) -> torch.Tensor:
        mixed = torch.randn(content.shape[1], count, generator=generator)
        return torch.linalg.qr(content @ mixed).Q  # (w, count), orthonormal

    with torch.no_grad():
        noise = torch.randn(shape.vocabulary, content.shape[1], generator=generator) @ content.T
        net.embed.weight.copy_(EMBEDDING * (noise + SHARED * w**0.5 * shared))
        net.norm.fill_(LAST_NORM)
        for block in net.blocks:  # what nothing is asked of is silent at first
            block.o.weight.zero_()
            block.down.weight.zero_()
        for head, (distance, notes) in enumerate(zip(distances, noted, strict=True)):
            rows = slice(head * size, (head + 1) * size)
            first, query, key = net.blocks[0], torch.zeros(size), torch.zeros(size)
            query[fast] = 1.0
            key[fast], key[fast + half] = (rates[fast] * distance).cos(), (rates[fast] * distance).sin()
            first.q.weight[rows] = POSITION / (w**0.5 * SHARED) * torch.outer(query, shared)
            first.k.weight[rows] = POSITION / (w**0.5 * SHARED) * torch.outer(key, shared)
            reads = directions(len(still))
            first.v.weight[rows].zero_()
            first.v.weight[rows][: len(still)] = reads.T
            first.o.weight[:, rows][:, : len(still)] = notes * EMBEDDING * WRITTEN
            for block in (net.blocks[2], net.blocks[3]):
                query, key, copies = torch.zeros(size, w), torch.zeros(size, w), directions(size)
                query[still], key[still] = reads.T, notes.T
                block.q.weight[rows], block.k.weight[rows] = CONTENT * query, CONTENT * key
                block.v.weight[rows] = copies.T
                block.o.weight[:, rows] = copies * EMBEDDING * COPIED
        last = slice(w - size, w)
        names, finds = (net.blocks[LOOKERS[kind][0]] for kind in (SUBJECT, SOURCE))
        third = size // 3
        itself, before = directions(size - 2 * third), (noted[0][:, :third], noted[2][:, :third])
        names.v.weight[last] = torch.cat([itself, *(one / WRITTEN for one in before)], 1).T
        names.o.weight[:, last] = subject * WRITTEN
        match = torch.zeros(size, w)
        match[still] = (subject @ torch.linalg.qr(torch.randn(size, len(still), generator=generator)).Q).T
        finds.q.weight[last], finds.k.weight[last] = CONTENT * match, CONTENT * match
        copies = directions(size)
        finds.v.weight[last], finds.o.weight[:, last] = copies.T, copies * EMBEDDING * COPIED
