"""Record corpora/real_traces, which notebooks 08 and 09 read: SmolLM2, in transformers and in
llama.cpp.

    python -m tools.record            all of them
    python -m tools.record mended     those whose names begin so

Some minutes. The model is fetched by ``python -m tools.real``.
"""

from __future__ import annotations

import sys
from typing import Any

import dragin_lab as dl
from tools.base import ROOT, say
from tools.real import SMOLLM2

MODEL = SMOLLM2.folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
CORPORA = ROOT / "corpora"
# where the model goes on with a question of its own, its answer has ended
UNTIL = ["\nQuestion:", "\n\n"]
BASE = {"variant": "paper", "threshold": 0.25, "max_new_tokens": 32}
NAME = "Where does Śivarāma Swami conduct courses on Vaishnava Theology?"
BORN_FIRST = "Which professional tennis player was born first, Lucie Hradecká or Raffaella Reggi?"
#: Question, answer and settings by the name of the file.
RECORDED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "invention": ("Who directed the film Jaws?", "Steven Spielberg", {"threshold": 0.75}),
    "truth": ("What is the capital of France?", "Paris", {"threshold": 0.75}),
    "mended": ("Who directed the film Together?", "Sean S. Cunningham", {"top_k": 1}),
    "mended-served": ("Who directed the film Together?", "Sean S. Cunningham", {"top_k": 1}),
    "selected": ("Where was Francesco Vico born?", "Milan", {"top_k": 1, "top_n": 8}),
    "accented-paper": (NAME, "Bhaktivedanta Manor", {}),
    "accented-reference": (NAME, "Bhaktivedanta Manor", {"variant": "reference", "threshold": 1.2}),
    "wrong-passage": (BORN_FIRST, "Raffaella Reggi", {"top_n": 8}),
}


def main() -> None:
    passages = CORPORA / "real_passages.jsonl.gz"
    asked = dl.benchmark(
        [{"question": "?", "answer": "!"}], exemplars=CORPORA / "real_exemplars.yaml"
    )
    template = dl.PromptTemplate(asked.template.exemplars, until=UNTIL)
    labs = {
        "": dl.Lab(MODEL, passages, template),
        "served": dl.Lab(MODEL, passages, template, engine="llama.cpp"),
    }
    for name in [name for name in RECORDED if name.startswith(tuple(sys.argv[1:]) or "")]:
        question, gold, settings = RECORDED[name]
        lab = labs["served" if name.endswith("served") else ""]
        trace = lab.ask(question, "dragin", gold=gold, **BASE | settings)
        if name == "wrong-passage":
            lab.attribute(trace)
        trace.save(CORPORA / "real_traces" / f"{name}.trace")
        say(f"{name}: {trace.answer!r}, exact match {trace.scores['em']:g}, asked {trace.queries}")


if __name__ == "__main__":
    main()
