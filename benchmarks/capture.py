"""What capture costs: time against drafts whose rows are not kept, and against ``generate``.

Medians of interleaved runs, as ratios within one round, so that a busy machine disturbs all ways
alike:

- capture: our engine with everything, the rows kept in full;
- without: our engine without the rows kept in full;
- generate: ``transformers``' ``generate`` without any capture.

Processor time is given beside it: with ``--threads 1`` it hardly depends on what else the machine
does.

    python benchmarks/capture.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common import begin, budget, interleaved, machine, parser, plain, random_llama, words, write

from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Prompt

# budgets; those against `generate` of the embedded model and of the large one
LOOP, GENERATE = 1.05, (1.0, 1.03)
VOCABULARY, VOCABULARY_LIMIT = 262_144, 1.08  # Gemma 3's; against `generate`, of processor time
PASSAGE = (
    "Question: When was the city where the director of film Gewair Lantern was born"
    " founded?\nAnswer: The film Gewair Lantern was directed by Graizond Loththaimpan. So the"
    " answer is 1450.\n"
)


def compare(lm: LanguageModel, text: str, n: int, runs: int) -> dict[str, Any]:
    """Median seconds of each variant over interleaved rounds, and medians of their ratios within
    a round.
    """
    lm.eos = frozenset()
    ids, _ = lm.tokenizer.encode_prompt(Prompt(text))

    def ours(attention: bool) -> list[int]:
        lm.prefixes.clear()
        return lm.write(Write(Prompt(text), n, attention=attention)).ids.tolist()

    ways: dict[str, Callable[[], list[int]]] = {
        "without": lambda: ours(False),
        "capture": lambda: ours(True),
        "generate": lambda: plain(lm, [ids], n)[0],
    }
    expected = ways["generate"]()

    def check(way: str, made: list[int]) -> None:
        if made != expected:
            raise SystemExit(f"{way} made other tokens than generate()")

    return {
        "model": lm.name,
        "parameters": sum(p.numel() for p in lm.model.parameters()),
        "prompt": len(ids),
        "tokens": n,
        **interleaved(ways, runs, check=check).summary("capture"),
    }


def main() -> None:
    options = parser(__doc__, "capture")
    options.add_argument("--runs", type=int, default=15, help="rounds on the embedded model")
    options.add_argument(
        "--large-runs", type=int, default=5, help="rounds on 0.5 billion parameters; 0 for none"
    )
    options.add_argument(
        "--vocabulary-runs", type=int, default=7, help="rounds on a large vocabulary; 0 for none"
    )
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--large-tokens", type=int, default=24)
    args = options.parse_args()
    begin(args)
    text, results = PASSAGE * 8 + PASSAGE[:96], []
    if args.runs:
        results.append(compare(LanguageModel.load(), text, args.tokens, args.runs))
    if args.large_runs:
        large = random_llama(layers=22, heads=20, hidden=1280, ffn=3456)
        results.append(compare(large, words(1024), args.large_tokens, args.large_runs))
    budgets = [line for each in zip(results, GENERATE, strict=False) for line in judge(*each)]
    if args.vocabulary_runs:
        small = random_llama(layers=12, heads=8, hidden=512, ffn=1408, vocab=VOCABULARY)
        results.append(compare(small, words(64), args.tokens, args.vocabulary_runs))
        what = f"decoding with capture / `generate`, a vocabulary of {VOCABULARY:,}, processor time"
        budgets.append(budget(what, results[-1]["over_cpu"]["generate"], VOCABULARY_LIMIT))
    write(args.out, {"budgets": budgets, "decoding": results, "machine": machine()})


def judge(measured: dict[str, Any], limit: float) -> list[dict[str, Any]]:
    """The lines of one model in docs/performance.md."""
    size = f"{measured['parameters'] / 1e6:.1f} M parameters"
    plain_ms, ours_ms = (
        1000 * measured["median_s"][way] / measured["tokens"] for way in ("generate", "capture")
    )
    note = (
        "a row of attention by the file's eager function, entropy, log-probability and the"
        f" likeliest tokens are measured at each token, which takes {ours_ms:.2f} ms in place of"
        f" {plain_ms:.2f}"
    )
    kept = f"decoding with all rows kept / without, {size}"
    captured = f"decoding with capture / `generate` without any capture, {size}"
    return [
        budget(kept, measured["over"]["without"], LOOP),
        budget(captured, measured["over"]["generate"], limit, note=note),
    ]


if __name__ == "__main__":
    main()
