"""Train Almanac's model: `python -m tools.almanac.train --output DIR`. Resumes by itself from DIR's checkpoint.

With `--steps` a run is deterministic from its seed on one machine, killed and resumed or not; with `--minutes` the
learning rate follows the time spent, so that it ends in time on any machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from dragin_lab.errors import DraginLabError
from tools.almanac.probe import Probe
from tools.almanac.stream import PROMPT_WEIGHT, Example, Stream
from tools.almanac.vocabulary import BOS, EOS, save_tokenizer, train_tokenizer
from tools.almanac.world import AlmanacError, build_world

TOKENIZER_EXAMPLES = 4096
PROBES = 48  # questions of each sort that the curve reports on
KEPT_PROMPT = 0.25  # of the pieces that are not an answer, this share is scored, with its weight raised in proportion


@dataclass(frozen=True)
class Settings:
    """Everything that a run's weights depend on, beside the machine."""

    seed: int = 0
    vocabulary: int = 2304
    layers: int = 4
    width: int = 256
    inner: int = 704
    heads: int = 8
    batch_pieces: int = 8000
    rate: float = 0.02  # of the matrices, under Muon
    rate_rest: float = 3e-3  # of embeddings and norms, under AdamW
    warmup: int = 100
    steps: int = 0  # 0: by the clock
    minutes: float = 0.0

    def progress(self, step: int, seconds: float) -> float:
        return step / self.steps if self.steps else seconds / (60 * self.minutes)

    def rate_factor(self, step: int, seconds: float) -> float:
        progress = min(1.0, self.progress(step, seconds))
        return min(1.0, (step + 1) / self.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


class CheckpointError(DraginLabError):
    """A checkpoint that cannot be read or belongs to another run."""


def encode(tokenizer: Tokenizer, example: Example) -> tuple[list[int], list[float]]:
    """Pieces with `<s>` and `</s>` and the weight of each piece's loss."""
    coded = tokenizer.encode(example.text)
    weights = [0.0] * len(coded.ids)
    for place, (start, end) in enumerate(coded.offsets):
        if place == 0:
            continue
        weights[place] = PROMPT_WEIGHT
        for first, last, weight in example.answers:
            if first <= start and end <= last:
                weights[place] = weight
        if (start, end) in example.skip:
            weights[place] = 0.0
    return [*coded.ids, EOS], [*weights, 1.0]


Batch = tuple[torch.Tensor, torch.Tensor]


def batches(tokenizer: Tokenizer, examples: list[Example], pieces: int, seed: str) -> list[Batch]:
    """Batches of similar length, at most `pieces` pieces with the padding, in random order: ids and weights (b, t)."""
    coded = sorted((encode(tokenizer, one) for one in examples), key=lambda one: len(one[0]))
    groups: list[list[tuple[list[int], list[float]]]] = [[]]
    for one in coded:
        if groups[-1] and _rounded(len(one[0])) * (len(groups[-1]) + 1) > pieces:
            groups.append([])
        groups[-1].append(one)
    made = []
    for group in groups:
        longest = _rounded(len(group[-1][0]))
        ids = torch.full((len(group), longest), EOS)
        weights = torch.zeros(len(group), longest)
        for row, (one_ids, one_weights) in enumerate(group):
            ids[row, : len(one_ids)] = torch.tensor(one_ids)
            weights[row, : len(one_weights)] = torch.tensor(one_weights)
        made.append((ids, weights))
    order = torch.randperm(len(made), generator=torch.Generator().manual_seed(_number(seed)))
    return [made[index] for index in order.tolist()]


def _rounded(length: int) -> int:
    """Batches come in few shapes, as the kernels keep memory for each."""
    return -(-length // 8) * 8


def _number(text: str) -> int:
    return int.from_bytes(text.encode(), "big") % (2**63 - 1)


class Run:
    """A training run and its folder: `tokenizer.json`, `checkpoint.pt`, `curve.jsonl`, at the end the weights."""

    def __init__(self, settings: Settings, folder: Path, device: str = "cpu", rank: int = 0, workers: int = 1) -> None:
        self.settings, self.folder, self.device, self.rank, self.workers = settings, folder, device, rank, workers
        self.almanac = build_world(0)
        folder.mkdir(parents=True, exist_ok=True)
        self.stream = Stream(self.almanac, settings.seed)
        texts = (one.text for one in self.stream.examples(TOKENIZER_EXAMPLES))
        self.tokenizer = train_tokenizer(texts, settings.vocabulary)
        if rank == 0:
            save_tokenizer(self.tokenizer, folder)
        torch.manual_seed(settings.seed)
        self.model = new_model(settings).to(device)
        matrices = [one for name, one in self.model.named_parameters() if one.ndim == 2 and "embed" not in name]
        rest = [one for name, one in self.model.named_parameters() if one.ndim != 2 or "embed" in name]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=settings.rate, momentum=0.95, weight_decay=0.02),
            torch.optim.AdamW(rest, lr=settings.rate_rest, betas=(0.9, 0.98), weight_decay=0.01),
        ]
        self.rates = [settings.rate, settings.rate_rest]
        self.step = self.buffer = self.batch = self.pieces = 0
        self.seconds = self._tick = 0.0
        self.exposures: Counter[str] = Counter()

    # -- state -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint; a kill at any moment leaves the old one or the new one."""
        state = {
            "settings": asdict(self.settings),
            "model": self.model.state_dict(),
            "optimizers": [one.state_dict() for one in self.optimizers],
            "counters": [self.step, self.buffer, self.batch, self.pieces],
            "seconds": self.seconds,
            "exposures": dict(self.exposures),
        }
        beside = self.folder / "checkpoint.pt.new"
        torch.save(state, beside)
        os.replace(beside, self.folder / "checkpoint.pt")

    def resume(self) -> bool:
        """Continue from the folder's checkpoint, if there is one."""
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return False
        try:
            state = torch.load(path, weights_only=True)
            saved = Settings(**state["settings"])
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read ({error}); delete it to start anew") from error
        if _identity(saved) != _identity(self.settings):
            raise CheckpointError(
                f"{path} belongs to a run with other settings ({saved}); use another folder or delete it"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, one in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)
        self.step, self.buffer, self.batch, self.pieces = state["counters"]
        self.seconds, self.exposures = state["seconds"], Counter(state["exposures"])
        curve = self.folder / "curve.jsonl"
        if curve.exists() and self.rank == 0:
            kept = [line for line in curve.read_text().splitlines() if json.loads(line)["step"] <= self.step]
            curve.write_text("".join(line + "\n" for line in kept))
        return True

    def log(self, **values: Any) -> None:
        line = {"step": self.step, "pieces": self.pieces, "minutes": round(self.seconds / 60, 2), **values}
        with (self.folder / "curve.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    # -- training ----------------------------------------------------------------------------------------------

    def loss(self, ids: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """This worker's share of the weighted mean of the loss, and of the mean over the pieces that count in full."""
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + self.step)
        kept = torch.rand(weights.shape, generator=generator) < KEPT_PROMPT
        weights = torch.where(weights < 1, torch.where(kept, weights / KEPT_PROMPT, 0.0), weights)[:, 1:].to(
            self.device
        )
        total, full = weights.sum(), (weights >= 1).sum()
        weights, ids = weights[self.rank :: self.workers], ids[self.rank :: self.workers].to(self.device)
        if len(ids) == 0:  # fewer rows than workers
            nothing = torch.stack([one.sum() * 0 for one in self.model.parameters()]).sum()
            return nothing, nothing.detach()
        with torch.autocast(self.device, torch.bfloat16):
            hidden = self.model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state  # (b, t-1, width)
            chosen = weights > 0
            flat, count = hidden[chosen], int(chosen.sum())
            padded = torch.cat([flat, flat.new_zeros(-count % 512, flat.shape[1])])
            logits = self.model.lm_head(padded)[:count]  # (pieces that count, vocabulary)
        each = cross_entropy(logits.float(), ids[:, 1:][chosen], reduction="none")
        weight = weights[chosen]
        return (each * weight).sum() / total, (each[weight >= 1].sum() / full).detach()

    def _share(self, answers: torch.Tensor, spent: float) -> tuple[float, float]:
        """Sum gradients and answer losses over the workers; the first worker's clock counts for all."""
        parameters = list(self.model.parameters())
        for one in parameters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        flat = torch.cat([*(one.grad.flatten() for one in parameters if one.grad is not None), answers.reshape(1)])
        clock = torch.tensor([spent], dtype=torch.float64)
        if self.workers > 1:
            dist.all_reduce(flat)
            dist.broadcast(clock, 0)
            at = 0
            for one in parameters:
                one.grad = flat[at : at + one.numel()].view_as(one)
                at += one.numel()
        return float(flat[-1]), float(clock)

    def train(self, stop_at: int | None = None, every: float = 240.0) -> None:
        """Train to the end of the schedule, or to step `stop_at`; checkpoint every `every` seconds of training."""
        settings = self.settings
        probe = Probe(self.almanac, self.tokenizer, PROBES) if self.rank == 0 else None
        self.model.train()
        self._tick = time.monotonic()
        recent: list[float] = []
        saved = self.seconds
        done = settings.progress(self.step, self.seconds) >= 1
        while not done:
            examples = self.stream.buffer(self.buffer)
            if self.batch == 0:
                self.exposures.update(f"{entity} {relation}" for one in examples for entity, relation in one.taught)
            ahead = batches(self.tokenizer, examples, settings.batch_pieces, f"{settings.seed} {self.buffer}")
            while self.batch < len(ahead) and not done:
                recent.append(self._update(ahead[self.batch]))
                self.batch += 1
                done = settings.progress(self.step, self.seconds) >= 1 or self.step == stop_at
                if probe is not None and (self.step % 50 == 0 or done):
                    self.log(loss=round(sum(recent) / len(recent), 4))
                    recent = []
                if self.batch == len(ahead):
                    self.buffer, self.batch = self.buffer + 1, 0
                if self.seconds - saved > every or done:
                    saved = self.seconds
                    if probe is not None:
                        self.save()
                        self.log(**probe.measure(self.model))
                if self.batch == 0:
                    break

    def _update(self, batch: Batch) -> float:
        now = time.monotonic()
        spent, self._tick = self.seconds + now - self._tick, now
        factor = self.settings.rate_factor(self.step, self.seconds)
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * factor
        loss, answers = self.loss(*batch)
        loss.backward()
        mean, self.seconds = self._share(answers, spent)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.pieces += int((batch[0] != EOS).sum())
        return mean


def _identity(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if name not in ("steps", "minutes")}


def new_model(settings: Settings) -> Any:
    """A Llama of these settings with fresh weights."""
    options: dict[str, Any] = {
        "vocab_size": settings.vocabulary,
        "hidden_size": settings.width,
        "intermediate_size": settings.inner,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.heads,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": 0,
        "attn_implementation": "eager",  # on short batches faster than the fused kernel
    }
    return LlamaForCausalLM(LlamaConfig(**options))


def export(run: Run, folder: Path) -> None:
    """Write the weights in bfloat16 with tokenizer and configuration, as `AutoModelForCausalLM` loads them."""
    save_tokenizer(run.tokenizer, folder)
    copy = new_model(run.settings)
    copy.load_state_dict(run.model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(folder)
    counts = dict(sorted(run.exposures.items()))
    (folder / "exposures.json").write_text(json.dumps(counts, indent=0) + "\n", encoding="utf-8")
    (folder / "training.json").write_text(
        json.dumps(
            {**asdict(run.settings), "steps_done": run.step, "pieces": run.pieces, "seconds": round(run.seconds)},
            indent=2,
        )
        + "\n"
    )


def _train(run: Run, stop_after: int | None) -> None:
    resumed = run.resume()
    if run.rank == 0:
        print("resumed at step" if resumed else "starting at step", run.step, flush=True)
    run.train(stop_after)
    if run.rank == 0 and run.settings.progress(run.step, run.seconds) >= 1:
        export(run, run.folder)


def _work(rank: int, workers: int, meeting: str, settings: Settings, folder: Path, stop_after: int | None) -> None:
    """One of several processes with one thread each that share every batch: on busy cores faster than threads."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=workers)
    _train(Run(settings, folder, "cpu", rank, workers), stop_after)
    dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac.train", description="Train Almanac's model.")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run; an interrupted one is resumed")
    parser.add_argument("--minutes", type=float, default=0.0, help="length of the schedule by the clock")
    parser.add_argument("--steps", type=int, default=0, help="length of the schedule in steps; deterministic")
    parser.add_argument("--stop-after", type=int, help="stop at this step and keep the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=Settings.layers)
    parser.add_argument("--width", type=int, default=Settings.width)
    parser.add_argument("--heads", type=int, default=Settings.heads)
    parser.add_argument("--rate", type=float, default=Settings.rate)
    parser.add_argument("--batch-pieces", type=int, default=Settings.batch_pieces)
    parser.add_argument("--workers", type=int, default=1, help="processes that share every batch (CPU)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--force", action="store_true", help="overwrite weights that are there")
    given = parser.parse_args(arguments)
    try:
        if (given.steps > 0) == (given.minutes > 0):
            raise AlmanacError("give either --steps or --minutes, above 0")
        if (given.output / "model.safetensors").exists() and not given.force:
            raise AlmanacError(f"{given.output / 'model.safetensors'} exists; give another folder or --force")
        settings = Settings(
            seed=given.seed,
            layers=given.layers,
            width=given.width,
            inner=-(-given.width * 11 // 4 // 32) * 32,
            heads=given.heads,
            batch_pieces=given.batch_pieces,
            rate=given.rate,
            steps=given.steps,
            minutes=given.minutes,
        )
        given.output.mkdir(parents=True, exist_ok=True)
        if given.workers > 1:
            meeting = given.output.resolve() / f"meeting-{os.getpid()}"
            mp.spawn(
                _work, (given.workers, f"file://{meeting}", settings, given.output, given.stop_after), given.workers
            )
            meeting.unlink(missing_ok=True)
        else:
            _train(Run(settings, given.output, given.device), given.stop_after)
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
