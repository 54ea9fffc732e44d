"""Train Almanac's model: `python -m tools.almanac.train --output DIR`; resumes from DIR's checkpoint.

The rate stays level, so that a run can be continued over many sittings; `--decay STEPS` branches off: it takes the
checkpoint, lets the rate fall to 0 over so many steps and writes the model, and leaves the checkpoint as it is. What
comes out depends on the seed and the numbers of steps alone, killed and resumed or not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from dragin_lab.errors import DraginLabError
from tools.almanac.drills import WORDS, Example
from tools.almanac.net import FOUND, SOURCE, SUBJECT, TOPIC, Net, Shape, give_a_start, llama_weights, to_llama
from tools.almanac.probe import Probe
from tools.almanac.stream import Stream
from tools.almanac.vocabulary import EOS, make_tokenizer, save_tokenizer
from tools.almanac.world import AlmanacError, build_world

TOKENIZER_BUFFERS = (0, 14, 24, 36, 37, 38, 39, 40)
AFTER = 12  # pieces from which a head looks back at the value before them, at most
PROBES = 96  # cases of each sort that the curve reports on


@dataclass(frozen=True)
class Settings:
    """Everything that a run's weights depend on, beside the machine and the number of steps."""

    seed: int = 0
    layers: int = 6
    width: int = 192
    inner: int = 512
    heads: int = 6
    batch_pieces: int = 3000
    rate: float = 0.02  # of the matrices, under Muon
    rate_rest: float = 0.01  # of embeddings and norms, under AdamW
    looking: float = 0.3  # weight of where two heads should look
    warmup: int = 60


class CheckpointError(DraginLabError):
    """A checkpoint that cannot be read or belongs to another run."""


@dataclass(frozen=True)
class Coded:
    """An example in pieces, with `<s>` and `</s>`: the weight of each piece's loss, and who should look where."""

    ids: list[int]
    weights: list[float]
    looks: list[tuple[int, int, int]]  # kind, place, target


def encode(tokenizer: Tokenizer, example: Example) -> Coded:
    """The example in pieces."""
    coded = tokenizer.encode(example.text)
    weights = [0.0] * len(coded.ids)
    ends = [end for _, end in coded.offsets]
    for first, last, weight in example.answers:
        place = bisect_right(ends, first)  # by ends, as a piece begins with the space before its word
        while place < len(weights) and coded.offsets[place][0] < last:
            weights[place] = weight
            place += 1
    for place, span in enumerate(coded.offsets):
        if place == 0 or span in example.skip:
            weights[place] = 0.0
    looks = []
    for value, subject in example.subjects:
        place, target = bisect_right(ends, value), bisect_right(ends, subject)
        looks += [(SUBJECT, at, target) for at in (place - 1, place) if at > target]
    for value, source in example.sources:
        looks.append((SOURCE, bisect_right(ends, value) - 1, bisect_right(ends, source)))
    for *sentence, first, last in example.topics:
        targets = range(bisect_right(ends, first), bisect_left(ends, last) + 1)
        for at in range(bisect_right(ends, sentence[0]), bisect_left(ends, sentence[1])):
            looks += [(TOPIC, at, target) for target in targets if at >= targets.stop]
    for (first, last), (until, _) in pairwise([*sorted(example.values), (len(example.text), 0)]):
        line = example.text.find("\n", last)
        stop = bisect_right(ends, min(until, line if line >= 0 else until))
        targets = range(bisect_right(ends, first), bisect_left(ends, last) + 1)
        looks += [
            (FOUND, at, target) for at in range(targets.stop, min(stop, targets.stop + AFTER)) for target in targets
        ]
    return Coded([*coded.ids, EOS], [*weights, WORDS], looks)


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def batches(tokenizer: Tokenizer, examples: list[Example], pieces: int, seed: str) -> list[Batch]:
    """Batches of similar length, at most `pieces` pieces with the padding, in random order: ids and weights (b, t), and
    where to look (n, 4): kind, row, place and target."""
    coded = sorted((encode(tokenizer, one) for one in examples), key=lambda one: len(one.ids))
    groups: list[list[Coded]] = [[]]
    for one in coded:
        if groups[-1] and _rounded(len(one.ids)) * (len(groups[-1]) + 1) > pieces:
            groups.append([])
        groups[-1].append(one)
    made = []
    for group in groups:
        longest = _rounded(len(group[-1].ids))
        ids = torch.full((len(group), longest), EOS)
        weights = torch.zeros(len(group), longest)
        for row, one in enumerate(group):
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
            weights[row, : len(one.ids)] = torch.tensor(one.weights)
        looks = [(kind, row, *places) for row, one in enumerate(group) for kind, *places in one.looks]
        made.append((ids, weights, torch.tensor(looks, dtype=torch.long).reshape(-1, 4)))
    order = torch.randperm(len(made), generator=torch.Generator().manual_seed(_number(seed)))
    return [made[index] for index in order.tolist()]


def _rounded(length: int) -> int:
    """Batches come in few shapes, as the kernels keep memory for each."""
    return -(-length // 8) * 8


def _number(text: str) -> int:
    return int.from_bytes(text.encode(), "big") % (2**63 - 1)


class Run:
    """A training run and its folder: `tokenizer.json`, `checkpoint.pt`, `curve.jsonl`."""

    def __init__(self, settings: Settings, folder: Path, rank: int = 0, workers: int = 1) -> None:
        self.settings, self.folder, self.rank, self.workers = settings, folder, rank, workers
        self.curve = folder / "curve.jsonl"
        self.almanac = build_world(0)
        self.stream = Stream(self.almanac, settings.seed)
        self.tokenizer = self._tokenizer()
        torch.manual_seed(settings.seed)
        sizes = (settings.layers, settings.width, settings.inner, settings.heads)
        self.net = Net(Shape(self.tokenizer.get_vocab_size(), *sizes))
        give_a_start(self.net, settings.seed)
        self.low = deepcopy(self.net).to(torch.bfloat16)  # what computes; `net` holds the weights in full precision
        named = list(self.net.named_parameters())
        matrices = [one for name, one in named if one.ndim == 2 and "embed" not in name]
        rest = [one for name, one in named if one.ndim != 2 or "embed" in name]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=settings.rate, momentum=0.95, weight_decay=0.02),
            torch.optim.AdamW(rest, lr=settings.rate_rest, betas=(0.9, 0.98), weight_decay=0.01),
        ]
        self.rates = [settings.rate, settings.rate_rest]
        self.step = self.buffer = self.batch = self.pieces = 0
        self.seconds = 0.0
        self.exposures: Counter[str] = Counter()

    def _tokenizer(self) -> Tokenizer:
        """The folder's; made where there is none yet, so that a run keeps its own whatever becomes of the stream."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            texts = (one.text for index in TOKENIZER_BUFFERS for one in self.stream.buffer(index))
            save_tokenizer(make_tokenizer(texts), self.folder)
        return Tokenizer.from_file(str(path))

    # -- state -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint; a kill at any moment leaves the old one or the new one."""
        state = {
            "settings": asdict(self.settings),
            "model": self.net.state_dict(),
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
            raise CheckpointError(f"{path} cannot be read ({error}); delete it to start again") from error
        if saved != self.settings:
            raise CheckpointError(
                f"{path} belongs to a run with other settings ({saved}); use another folder or delete it"
            )
        self.net.load_state_dict(state["model"])
        for optimizer, one in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)
        self.step, self.buffer, self.batch, self.pieces = state["counters"]
        self.seconds, self.exposures = state["seconds"], Counter(state["exposures"])
        return True

    def begin_from(self, model: Path) -> None:
        """Take the weights and the counters of a finished model's folder; the optimizers start anew."""
        stored = load_file(model / "model.safetensors")
        with torch.no_grad():
            for name, weights in llama_weights(self.net).items():
                weights.copy_(stored[name])
        self._copy_down()
        training = json.loads((model / "training.json").read_text(encoding="utf-8"))
        self.step, self.pieces, self.seconds = (training[name] for name in ("steps_done", "pieces", "seconds"))
        self.exposures = Counter(json.loads((model / "exposures.json").read_text(encoding="utf-8")))

    def log_to(self, curve: Path) -> None:
        """Log to `curve` from here on, after what the run's own curve says up to the present step."""
        old = self.curve.read_text(encoding="utf-8").splitlines() if self.curve.exists() else []
        self.curve = curve
        curve.parent.mkdir(parents=True, exist_ok=True)
        lines = [line for line in old if json.loads(line)["step"] <= self.step]
        curve.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def log(self, **values: Any) -> None:
        line = {"step": self.step, "pieces": self.pieces, "minutes": round(self.seconds / 60, 2), **values}
        with self.curve.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    # -- training ----------------------------------------------------------------------------------------------

    def train(self, steps: int | None = None, decay: int = 0, every: float = 240.0) -> None:
        """Train for so many steps, or until killed; a checkpoint every `every` seconds. `decay` lets the rate fall to 0
        over the steps and saves nothing."""
        probe = Probe(self.almanac, self.tokenizer, PROBES) if self.rank == 0 else None
        first, tick, saved = self.step, time.monotonic(), self.seconds
        recent: list[list[float]] = []
        done = steps == 0
        while not done:
            for batch in self._ahead():
                left = 1 - (self.step - first) / decay if decay else 1.0
                recent.append(self._update(batch, min(1.0, (self.step + 1) / self.settings.warmup) * left))
                now = time.monotonic()
                self.seconds, tick = self.seconds + now - tick, now
                done = self.step - first == (decay or steps)
                if probe is not None and (self.step % 50 == 0 or done):
                    loss, elsewhere, values = (round(sum(of) / len(of), 4) for of in zip(*recent, strict=True))
                    self.log(loss=loss, elsewhere=elsewhere, values=values, buffer=self.buffer)
                    recent = []
                if probe is not None and (self.seconds - saved > every or done):
                    saved = self.seconds
                    if not decay:
                        self.save()
                    self._copy_down()
                    self.log(**probe.measure(lambda ids: self.low.logits(self.low(ids)[0])))
                if done:
                    break

    def _ahead(self) -> Iterable[Batch]:
        """The batches of the present buffer that are still to come; then the next buffer is the present one."""
        examples = self.stream.buffer(self.buffer)
        if self.batch == 0:
            self.exposures.update(f"{entity} {relation}" for one in examples for entity, relation in one.taught)
        made = batches(self.tokenizer, examples, self.settings.batch_pieces, f"{self.settings.seed} {self.buffer}")
        for one in made[self.batch :]:
            self.batch += 1
            if self.batch == len(made):
                self.buffer, self.batch = self.buffer + 1, 0
            yield one

    def _copy_down(self) -> None:
        with torch.no_grad():
            for low, full in zip(self.low.parameters(), self.net.parameters(), strict=True):
                low.copy_(full)

    def _update(self, batch: Batch, factor: float) -> list[float]:
        """One step; the losses of words and of looking, and the share of the pieces of values that are right."""
        self._copy_down()
        ids, weights, looks = batch[0], batch[1][:, 1:], batch[2]
        total, full = weights.sum(), (weights >= 1).sum().clamp(min=1)
        ids, weights = ids[self.rank :: self.workers], weights[self.rank :: self.workers]
        looks = looks[looks[:, 1] % self.workers == self.rank]
        looks[:, 1] //= self.workers
        chosen = weights > 0
        targets, weight = ids[:, 1:][chosen], weights[chosen]
        hidden, elsewhere = self.low(ids[:, :-1], looks)
        logits = self.low.logits(hidden[chosen]).float()  # (pieces that count, vocabulary)
        loss = (cross_entropy(logits, targets, reduction="none") * weight).sum() / total
        (loss + self.settings.looking / self.workers * elsewhere).backward()
        right = ((logits.argmax(-1) == targets) & (weight >= 1)).sum() / full
        gradients = [one.grad.flatten().float() for one in self.low.parameters() if one.grad is not None]
        flat = torch.cat([*gradients, torch.stack([loss.detach(), elsewhere.detach() / self.workers, right])])
        if self.workers > 1:
            dist.all_reduce(flat)
        at = 0
        for low, one in zip(self.low.parameters(), self.net.parameters(), strict=True):
            one.grad = flat[at : at + one.numel()].view_as(one)
            low.grad = None
            at += one.numel()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * factor
            optimizer.step()
        self.step += 1
        self.pieces += int((batch[0] != EOS).sum())
        return flat[-3:].tolist()


def export(run: Run, folder: Path, decay: int = 0) -> None:
    """Write the weights in bfloat16 with tokenizer and configuration, as `AutoModelForCausalLM` loads them."""
    save_tokenizer(run.tokenizer, folder)
    to_llama(run.net).to(torch.bfloat16).save_pretrained(folder)
    counts = dict(sorted(run.exposures.items()))
    (folder / "exposures.json").write_text(json.dumps(counts, indent=0) + "\n", encoding="utf-8")
    done = {"steps_done": run.step, "decay": decay, "pieces": run.pieces, "seconds": round(run.seconds)}
    done["vocabulary"] = run.tokenizer.get_vocab_size()
    (folder / "training.json").write_text(json.dumps({**asdict(run.settings), **done}, indent=2) + "\n")


def _work(rank: int, workers: int, meeting: str, settings: Settings, given: argparse.Namespace) -> None:
    torch.set_num_threads(given.threads)
    if workers > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=workers)
    run = Run(settings, given.output, rank, workers)
    resumed = run.resume()
    if rank == 0:
        print("resumed at step" if resumed else "starting at step", run.step, flush=True)
        run.log_to((given.export or given.output) / "curve.jsonl")
    run.train(given.steps, given.decay)
    if rank == 0 and given.decay:
        export(run, given.export, given.decay)
    if workers > 1:
        dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac.train", description="Train Almanac's model.")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run; what is there is continued")
    parser.add_argument("--steps", type=int, help="stop after so many steps more; else it goes on until it is killed")
    parser.add_argument("--decay", type=int, default=0, help="branch off: let the rate fall to 0 over so many steps")
    parser.add_argument("--export", type=Path, help="with --decay: the folder of the model that comes out")
    parser.add_argument("--seed", type=int, default=0)
    for name in ("layers", "width", "inner", "heads", "batch_pieces"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Settings, name))
    parser.add_argument("--rate", type=float, default=Settings.rate)
    parser.add_argument("--workers", type=int, default=1, help="processes that share every batch")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args(arguments)
    try:
        if bool(given.decay) != bool(given.export):
            raise AlmanacError("--decay and --export go together")
        if given.export and (given.export / "model.safetensors").exists():
            raise AlmanacError(f"{given.export / 'model.safetensors'} exists; give another folder")
        options = {name: getattr(given, name) for name in asdict(Settings()) if hasattr(given, name)}
        settings = Settings(**options)
        given.output.mkdir(parents=True, exist_ok=True)
        if given.workers > 1:
            Run(settings, given.output)  # makes the tokenizer, once
            meeting = given.output.resolve() / f"meeting-{os.getpid()}"
            mp.spawn(_work, (given.workers, f"file://{meeting}", settings, given), given.workers)
            meeting.unlink(missing_ok=True)
        else:
            _work(0, 1, "", settings, given)
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
