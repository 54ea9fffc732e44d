"""What knowing a model by what it computes costs: one probe over one answer of 96 tokens, in
processor time.

python benchmarks/probe.py --model SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

from typing import Any

from common import begin, budget, interleaved, machine, parser, write

from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel, open_model
from dragin_lab.trace.trace import Prompt

AT_MOST, TOKENS = 0.03, 96
PROMPT = Prompt(
    "Question: When was the city where the director of film Gewair Lantern was born"
    " founded?\nAnswer:"
)


def compare(lm: LanguageModel, rounds: int) -> dict[str, Any]:
    """The probe's processor time over that of an answer, the median of rounds that alternate."""
    lm.eos = frozenset()  # so that the answer has all its tokens

    def answer() -> int:
        lm.prefixes.clear()
        return len(lm.write(Write(PROMPT, TOKENS, attention=True)))

    found = interleaved({"probe": lm.probe, "answer": answer}, rounds)
    share = found.over("probe", processor=True)["answer"]
    return {"model": lm.name.rpartition("/")[2], "tokens": TOKENS, "rounds": rounds, "share": share}


def main() -> None:
    options = parser(__doc__, "probe")
    options.add_argument("--runs", type=int, default=9)
    options.add_argument("--model", help="another model besides the embedded one")
    args = options.parse_args()
    begin(args)
    models = [LanguageModel.load(), *([open_model(args.model)] if args.model else [])]
    results = [compare(lm, args.runs) for lm in models]
    what = "a probe / an answer of {} tokens, {}, processor time"
    budgets = [budget(what.format(TOKENS, one["model"]), one["share"], AT_MOST) for one in results]
    write(args.out, {"budgets": budgets, "probes": results, "machine": machine()})


if __name__ == "__main__":
    main()
