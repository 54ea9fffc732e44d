"""Answer extraction and scores (DRAGIN Appendix B; reference-behaviour §6)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

from dragin_lab.errors import SettingError

ANSWER_PHRASE = "the answer is"
#: What a text is continued with when it never says the phrase.
ANSWER_PROMPT = " So the answer is "
#: How many tokens that continuation may have.
ANSWER_TOKENS = 20

_CUTS = ("Question:", "#10000000", "Note:")
#: The end marks that the released code strips from an answer.
RELEASED_ENDS = ("</s>", "<|endoftext|>")
_STRIPPED = {
    "2wikimultihopqa": (*RELEASED_ENDS, "."),
    "hotpotqa": (*RELEASED_ENDS, "."),
    "iirc": (*RELEASED_ENDS, "\n", "."),
    "strategyqa": (),
}
#: Benchmarks that an answer can be extracted for; each has its own rule.
ANSWER_RULES = tuple(_STRIPPED)
_PARTS = ("em", "f1", "precision", "recall")
#: What is reported on each benchmark (paper, Table 8). StrategyQA's accuracy is the exact match of its yes or no.
MEASURES = {"2wikimultihopqa": _PARTS, "hotpotqa": _PARTS, "iirc": _PARTS, "strategyqa": ("accuracy",)}

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def thoughts(text: str) -> list[tuple[int, int]]:
    """Half-open characters of what a thinking model wrote between ``<think>`` and ``</think>``, marks included.

    A part that is not closed reaches to the end; one that the prompt opened reaches from the start.
    """
    opens, closes = text.find("<think>"), text.find("</think>")
    first = closes + len("</think>") if closes >= 0 and (opens < 0 or closes < opens) else 0
    return [(0, first)] * bool(first) + [match.span() for match in _THOUGHT.finditer(text, first)]


def without_thoughts(text: str) -> str:
    """A text without what a thinking model thought."""
    for start, stop in reversed(thoughts(text)):
        text = text[:start] + text[stop:]
    return text


def without_end_marks(text: str, marks: Iterable[str]) -> str:
    """A text without the model's end marks (``episode.Tokenizer.end_marks``)."""
    for mark in marks:
        text = text.replace(mark, "")
    return text


def cut_prediction(text: str, *, at_start: bool = False) -> str:
    """The text up to where the model went on to something else (reference-behaviour §6.1).

    A mark at position 0 counts only with ``at_start``.
    """
    places = [place for mark in _CUTS if (place := text.find(mark)) >= (0 if at_start else 1)]
    return text[: min(places, default=None)]


def extract_answer(text: str, rule: str = "2wikimultihopqa", phrase: str = ANSWER_PHRASE) -> str:
    """What stands after the first ``phrase`` and one more character (reference-behaviour §6.3).

    ``rule`` is one of ``ANSWER_RULES``. Without the phrase 2WikiMultihopQA keeps the whole text and the others
    nothing; StrategyQA answers ``no`` unless the first three letters are yes.
    """
    if rule not in _STRIPPED:
        raise SettingError(f"answer rule {rule!r} does not exist; one of {', '.join(ANSWER_RULES)}")
    place = text.find(phrase)
    answer = text[place + len(phrase) + 1 :] if place >= 0 else (text if rule == "2wikimultihopqa" else "")
    if rule == "strategyqa":
        return "yes" if answer.strip()[:3].lower() == "yes" else "no"
    answer = answer.strip()
    for ending in _STRIPPED[rule]:
        answer = answer.removesuffix(ending)
    return answer.strip()


def is_readable(text: str, rule: str = "2wikimultihopqa", phrase: str = ANSWER_PHRASE) -> bool:
    """Whether an answer stands after ``phrase``: some letter or digit, of StrategyQA yes or no.

    ``extract_answer`` makes something of any text, as the released code does: of nonsense it makes StrategyQA's "no".
    """
    answer = text.partition(phrase)[2]
    for end in RELEASED_ENDS:
        answer = answer.replace(end, " ")
    words = normalize_answer(answer).split()
    return words[:1] in (["yes"], ["no"]) if rule == "strategyqa" else bool(words)


def normalize_answer(text: str) -> str:
    """SQuAD's normal form: lower case, no punctuation, no articles, single spaces."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 where the normal form equals that of some gold, else 0.0."""
    return float(any(normalize_answer(prediction) == normalize_answer(gold) for gold in golds))


def _overlap_scores(prediction: str, gold: str) -> tuple[float, float, float]:
    p, g = normalize_answer(prediction), normalize_answer(gold)
    closed = {"yes", "no", "noanswer"}
    if p != g and (p in closed or g in closed):
        return 0.0, 0.0, 0.0
    p_tokens, g_tokens = p.split(), g.split()
    same = sum((Counter(p_tokens) & Counter(g_tokens)).values())
    if same == 0:
        return 0.0, 0.0, 0.0
    precision, recall = same / len(p_tokens), same / len(g_tokens)
    return 2 * precision * recall / (precision + recall), precision, recall


def score_answer(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """em, f1, precision and recall in [0, 1], each the best over the golds on its own (reference-behaviour §6.4).

    Raises ``SettingError`` without golds: a score against nothing would read as a wrong answer.
    """
    if not golds:
        raise SettingError("a question without gold answers cannot be scored")
    f1, precision, recall = map(max, zip(*(_overlap_scores(prediction, gold) for gold in golds), strict=True))
    return {"em": exact_match(prediction, golds), "f1": f1, "precision": precision, "recall": recall}
