"""How answers are written, read from a text, and scored (DRAGIN Appendix B; FLARE, Prompts D.2,
D.3).

What the released code reads and scores is in reference-behaviour §6.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dragin_lab.checks import check_text, choice
from dragin_lab.errors import SettingError
from dragin_lab.text import fold_letters, visible
from dragin_lab.trace.draft import WORD, Span

ANSWER_PHRASE = "the answer is"
#: What a text is continued with when it never says the phrase.
ANSWER_PROMPT = " So the answer is "
#: How many tokens that continuation may have.
ANSWER_TOKENS = 20

CUTS = ("Question:", "#10000000", "Note:")
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
_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Marks of Chinese and Japanese: of their own, wide forms of ASCII's, and others beside an
#: ideograph or kana.
WIDE_MARKS = re.compile(
    r"(?=[\u3000-\u30ff\ufe30-\ufe4f\uff00-\uffef])[^\w\s]"
    r"|(?<=[\u3040-\u30ff\u3400-\u9fff])[·“”‘’…—]+|[·“”‘’…—]+(?=[\u3040-\u30ff\u3400-\u9fff])"
)
_MARKUP = re.compile(r"<[^<>]*>|\\[a-zA-Z]+")
#: What may stand around an answer in the paper variant: LaTeX's box and fonts, a pair of tags, a
#: link, and citations.
_BRACED = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
_BOX = re.compile(r"\\(?:boxed|fbox)" + _BRACED)
_WRAPS = (
    re.compile(r"\\(?:boxed|fbox|mbox|emph|underline|(?:text|math)[a-z]*)" + _BRACED),
    re.compile(r"<(?P<tag>[a-zA-Z][\w:-]*)(?:\s[^<>]*)?>(.*?)</(?P=tag)\s*>", re.DOTALL),
    re.compile(r"\[([^\[\]]+)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)"),
    re.compile(r"^[“„«]([^“”„«»]+)[”“»]$"),
)
#: One that the end of the sentence cut.
_UNCLOSED = re.compile(
    r"^\s*(?:\\boxed\s*\{|<(?:b|i|u|p|em|strong|span|code|mark|answer)\b[^<>]*>)"
)
_CITATIONS = re.compile(r"(?:[\s,;]*[\[【]\^?[1-9]\d{0,2}(?:\s*[,;–-]\s*\d{1,3})*[\]】])+[\s.]*$")
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_TRUTH = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_TAG = r"[\w:]*(?:think|thought|reason)\w*"
#: Marks that are no tags: what opens a thought, and what closes it.
_OTHER_MARKS = {
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
}
_FINAL = "<|channel|>final<|message|>"  # harmony: what is said in any other channel is a thought
_CHANNEL = r"<\|channel\|>(?!final)(?:\w+<\|message\|>)?"
_OPENS = rf"<{_TAG}>|{'|'.join(map(re.escape, _OTHER_MARKS))}|{_CHANNEL}"
_CLOSES = rf"</{_TAG}>|{'|'.join(map(re.escape, _OTHER_MARKS.values()))}|{re.escape(_FINAL)}"
_SIGNS = ("<", "[", "◁")  # that marks of thoughts begin with
_MARK = re.compile(f"(?P<opens>{_OPENS})|{_CLOSES}")
_OPENED = re.compile(rf"(?:{_OPENS})\s*\Z")
#: What opens and closes thoughts, as control tokens too: <think>, <seed:think>, [THINK], harmony's
#: channels.
THOUGHT_MARK = re.compile(rf"{_OPENS}|{_CLOSES}|<\|(?:channel|message)\|>")


def _closing_of(mark: str) -> str:
    """What closes a thought that a mark opens."""
    if mark.startswith("<|channel|>"):
        return _FINAL
    return _OTHER_MARKS.get(mark) or mark.replace("<", "</", 1)


def thoughts(text: str, opened: str = "") -> list[Span]:
    """Half-open characters of what a thinking model wrote between the marks of ``THOUGHT_MARK``,
    these included.

    A part that is not closed reaches to the end. ``opened`` is the mark of the thought that the
    text begins within; without it, one that the text closes and does not open reaches from the
    start.
    """
    spans: list[Span] = []
    # known at once, and so at each token of a long text
    if not opened and not any(sign in text for sign in _SIGNS):
        return spans
    place = 0
    if opened:
        place = _end_thought(text, 0, opened)
        spans.append((0, place))
    while match := _MARK.search(text, place):
        start, place = match.span()
        if match["opens"]:
            place = _end_thought(text, place, match[0])
        elif not spans and match[0] != _FINAL:  # it closes what was opened before the text
            start = 0
        spans.append((start, place))
    return spans


def _end_thought(text: str, start: int, mark: str) -> int:
    """Where a thought ends that a mark opens before ``start``."""
    closing = _closing_of(mark)
    close = text.find(closing, start)
    return len(text) if close < 0 else close + len(closing)


def open_thought(text: str) -> str:
    """The mark of the thought that a text ends within; "" where it ends outside one."""
    start, stop = (thoughts(text) or [(0, 0)])[-1]
    mark = re.compile(_OPENS).match(text, start)
    if mark is None or stop < len(text) or text.endswith(_closing_of(mark[0]), mark.end()):
        return ""
    return mark[0]


def opened_thought(prompt: str) -> str:
    """The mark of a thought that a prompt opens at its end, as some chat templates do; "" where
    it opens none.
    """
    mark = _OPENED.search(prompt)
    return mark[0].strip() if mark else ""


#: A character that no mark and no word has.
HIDDEN = "\0"


def hide_spans(text: str, spans: Iterable[Span]) -> str:
    """The text with ``HIDDEN`` in place of some of its characters; as long as before."""
    for start, stop in spans:
        text = text[:start] + HIDDEN * (stop - start) + text[stop:]
    return text


def without_thoughts(text: str, opened: str = "") -> str:
    """A text without what a thinking model thought; ``opened`` as for ``thoughts``."""
    for start, stop in reversed(thoughts(text, opened)):
        text = text[:start] + text[stop:]
    return text


def cut_prediction(text: str, *, at_start: bool = False) -> str:
    """The text up to where the model went on to something else (reference-behaviour §6.1).

    A mark at position 0 counts only with ``at_start``.
    """
    first = 0 if at_start else 1
    places = [text.find(mark) for mark in CUTS]
    return text[: min((place for place in places if place >= first), default=None)]


def fold_phrase(text: str, phrase: str = ANSWER_PHRASE) -> str:
    """The text with every ``phrase``, whatever its capitals, written as here; as long as before."""
    # found at once, and so at each token of a long text
    if text.isascii() and phrase.lower() not in text.lower():
        return text
    return re.sub(re.escape(phrase), lambda _: phrase, text, flags=re.IGNORECASE)


def extract_answer(text: str, rule: str = "2wikimultihopqa", phrase: str = ANSWER_PHRASE) -> str:
    """What the released code reads: all after the first ``phrase`` and one more character
    (reference-behaviour §6.3).

    ``rule`` is one of ``ANSWER_RULES``. Without the phrase 2WikiMultihopQA keeps the whole text and
    the others nothing; StrategyQA answers ``no`` unless the first three letters are yes. Raises
    ``SettingError`` for another rule.
    """
    choice("rule", rule, ANSWER_RULES)
    _, stated, answer = text.partition(phrase)
    if not stated:
        answer = text if rule == "2wikimultihopqa" else ""
        return _strip_ends(answer, rule)
    answer = answer[1:]
    if rule == "strategyqa":
        return "yes" if answer[:3].lower() == "yes" else "no"
    return _strip_ends(answer, rule)


def _strip_ends(answer: str, rule: str) -> str:
    answer = answer.strip()
    for ending in _STRIPPED[rule]:
        answer = answer.removesuffix(ending)
    return answer.strip()


def read_answer(text: str, rule: str = "2wikimultihopqa", phrase: str = ANSWER_PHRASE) -> str:
    """The same as the paper has it: the phrase in any capitals, and "the obtained yes/no response"
    (Appendix B).

    That is StrategyQA's first word, yes or true, no or false, whatever marks stand around it; "no"
    for any other. Of other answers ``unwrap_answer`` takes what the model put around them.
    """
    text = fold_phrase(text, phrase)
    if rule == "strategyqa":
        _, stated, response = text.partition(phrase)
        return _TRUTH.get(_first_word(response), "no") if stated else ""
    answer = extract_answer(text, rule, phrase)
    bare = unwrap_answer(answer)
    return answer if bare == answer else _strip_ends(bare, rule)


def unwrap_answer(answer: str) -> str:
    """An answer without what stands around it: a box, fonts and tags, a link's address, citations
    at its end.

    Citations are those of the passages' numbers in the prompt. What is nothing else stays: "[1]"
    can be an answer.
    """
    text = visible(answer)
    before = ""
    if len(boxes := _BOX.findall(text)) == 1:
        text = boxes[0]
    while text != before:
        before = text
        for wrap in _WRAPS:
            text = wrap.sub(lambda match: match[match.lastindex or 0], text)
        text = _CITATIONS.sub("", text).strip()
    text = _UNCLOSED.sub("", text)
    return text if any(map(str.isalnum, text)) else answer


def _first_word(answer: str) -> str:
    """The first word of an answer, in small letters, without markup."""
    return next(iter(re.findall(r"[^\W_]+", _MARKUP.sub(" ", answer).lower())), "")


def is_readable(text: str, rule: str = "2wikimultihopqa", phrase: str = ANSWER_PHRASE) -> bool:
    """Whether an answer stands after ``phrase``: a letter or digit (in StrategyQA yes or no), and
    no second phrase.

    ``read_answer`` makes something of any text: of nonsense it makes StrategyQA's "no".
    """
    answer = fold_phrase(text, phrase).partition(phrase)[2]
    for end in RELEASED_ENDS:
        answer = answer.replace(end, " ")
    if phrase in answer:
        return False
    return _first_word(answer) in _TRUTH if rule == "strategyqa" else any(map(str.isalnum, answer))


def normalize_answer(text: str, *, released: bool = False) -> str:
    """SQuAD's normal form: lower case, no punctuation, no articles, single spaces.

    The text is first folded as in an index (``text.fold_letters``). Wide marks are punctuation,
    each ideograph and kana is a word (as in DRCD and CMRC 2018), a letter with a mark is no
    article, and a text of articles or marks alone stays. The ``released`` code does none of this.
    """
    if not released:
        text = WIDE_MARKS.sub("", fold_letters(text))
    plain = text.lower().translate(_PUNCTUATION)
    words = _ARTICLE.sub(" " if released else _keep_marked, plain).strip()
    return " ".join(words.split() if released else WORD.findall(words or plain or text))


def _keep_marked(article: re.Match[str]) -> str:
    """An article as it stands where a combining mark is beside it, which makes it a part of a
    word; else a space.
    """
    start, end = article.span()
    text = article.string
    beside = text[max(start - 1, 0) : start] + text[end : end + 1]
    is_marked = any(unicodedata.category(letter).startswith("M") for letter in beside)
    return article[0] if is_marked else " "


def _overlap_scores(p: str, g: str) -> tuple[float, float, float]:
    """F1, precision and recall of two texts in normal form."""
    closed = {"yes", "no", "noanswer"}
    p_tokens = p.split()
    g_tokens = g.split()
    shared = Counter(p_tokens) & Counter(g_tokens)
    same = shared.total()
    if same == 0 or (p != g and not closed.isdisjoint((p, g))):
        return 0.0, 0.0, 0.0
    precision = same / len(p_tokens)
    recall = same / len(g_tokens)
    f1 = 2 * precision * recall / (precision + recall)
    return f1, precision, recall


def score_answer(
    prediction: str, golds: Sequence[str], *, released: bool = False
) -> dict[str, float]:
    """em, f1, precision and recall in [0, 1], each the best over the golds on its own
    (reference-behaviour §6.4).

    ``released`` as in ``normalize_answer``. Raises ``SettingError`` without golds: a score against
    nothing would read as a wrong answer.
    """
    if not golds:
        raise SettingError("a question without gold answers cannot be scored")
    given, *forms = (normalize_answer(text, released=released) for text in (prediction, *golds))
    overlaps = [_overlap_scores(given, form) for form in forms]
    f1, precision, recall = map(max, zip(*overlaps, strict=True))
    return {"em": float(given in forms), "f1": f1, "precision": precision, "recall": recall}


# -- how answers are written -----------------------------------------------------------------------

#: What opens and closes a search call, and what stands around a follow-up question.
CALL_OPENS = "[Search("
CALL_CLOSES = ")]"
FOLLOW_UP = "Follow up:"
INTERMEDIATE = "Intermediate answer:"
#: Search-R1's task (github.com/PeterGriffinJin/Search-R1, infer.py).
SEARCH_R1 = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every"
    " time you get new information. After reasoning, if you find you lack some knowledge, you can"
    " call a search engine by <search> query </search> and it will return the top searched results"
    " between <information> and </information>. You can search as many times as your want. If you"
    " find no further external knowledge needed, you can directly provide the answer inside"
    " <answer> and </answer>, without detailed illustrations. For example, <answer> Beijing"
    " </answer>. Question: {question}\n"
)


@dataclass(frozen=True)
class Exemplar:
    """A worked example: question, reasoning in sentences, final answer."""

    question: str
    rationale: str
    answer: str

    def __post_init__(self) -> None:
        for label in ("question", "rationale", "answer"):
            check_text(f"{label} of an Exemplar", getattr(self, label))


@dataclass(frozen=True)
class Form:
    """The fixed words of one way to answer.

    ``label`` stands after the question, ``closing`` before an exemplar's final answer. ``phrase``
    is what extraction looks for (the final answer begins one character after it) and ``request``
    what asks a text without it for one. ``shown_by`` is what exemplars of this form hold ("" where
    any will do); those without it get ``plain_label``. ``closes`` ends the final answer, where its
    sentence does not. ``task`` is the whole prompt with ``{question}`` in it, for models that were
    trained on one: exemplars and layout then have no say.
    """

    label: str
    closing: str
    phrase: str
    request: str
    shown_by: str = ""
    plain_label: str = ""
    closes: str = ""
    task: str = ""

    def label_of(self, exemplar: Exemplar) -> str:
        """What stands after an exemplar's question."""
        return self.label if self.shown_by in exemplar.rationale else self.plain_label or self.label

    def worked(self, exemplar: Exemplar) -> str:
        """An exemplar's reasoning and final answer, as they stand after its label."""
        reasoning = exemplar.rationale.removeprefix(self.label).lstrip()
        return f"{reasoning}{self.closing}{exemplar.answer}."

    def exemplar(self, exemplar: Exemplar) -> str:
        """An exemplar as it stands in a prompt."""
        return f"Question: {exemplar.question}\n{self.label_of(exemplar)} {self.worked(exemplar)}\n"

    def stated(self, text: str) -> str:
        """The last phrase and what stands between its marks, where the form has any: a model may
        name them before.
        """
        if not self.closes:
            return text
        inside = text.rpartition(self.phrase)[2].partition(self.closes)[0]
        return f"{self.phrase} {inside}" if self.phrase in text else ""

    def shown(self, exemplars: Sequence[Exemplar]) -> bool:
        """Whether exemplars teach this form."""
        return not self.shown_by or any(
            self.shown_by in exemplar.rationale for exemplar in exemplars
        )


_REASONED = (" So the answer is ", ANSWER_PHRASE, ANSWER_PROMPT)
FORMS = {
    "reasoning": Form("Answer:", *_REASONED),
    "search": Form(
        "Answer (with step-by-step & Search):",
        *_REASONED,
        shown_by=CALL_OPENS,
        plain_label="Answer (with step-by-step):",
    ),
    "self-ask": Form(
        "Are follow up questions needed here:",
        "\nSo the final answer is: ",
        "So the final answer is",
        "\nSo the final answer is:",
        shown_by=FOLLOW_UP,
    ),
    "search-r1": Form("", " ", "<answer>", "\n<answer>", closes="</answer>", task=SEARCH_R1),
}
