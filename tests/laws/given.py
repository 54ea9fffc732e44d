"""What laws draw from: texts, questions, models that say what was drawn, retrievers, methods with
their settings.

What is drawn depends on the draw alone, and so does what a model or a retriever answers: on the
prompt or the query, not on when, how often or beside what it is asked. A law that needs more adds
it here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

import spacy
from answering import ONE, Batch
from hypothesis import settings
from hypothesis import strategies as st
from scripted import Say, ScriptedModel, ScriptedRetriever, WordTokenizer

import dragin_lab as dl

T = TypeVar("T")

# -- texts -----------------------------------------------------------------------------------------

#: Names, other words, stop words, numbers, scripts without spaces, accents, what no word is.
WORDS = st.sampled_from(
    [
        "Bo",
        "Ek",
        "Li",
        "Ada",
        "film",
        "directed",
        "born",
        "town",
        "who",
        "by",
        "the",
        "It",
        "is",
        "was",
        "of",
        "He",
        "1905",
        "19",
        "é",
        "naïve",
        "電影",
        "🎬",
        "(",
        ")",
        "-",
        "'",
        "’",
    ]
)
#: What ends a sentence, states the answer, opens another example, asks for a search.
TURNS = st.sampled_from(
    [
        *(
            ".",
            "?",
            "!",
            ",",
            "",
            ". ",
            "...",
            " Dr.",
            "\n",
            "\n\n",
            "\nQuestion: Who?",
            "\nContext:\n[1] A film.",
        ),
        *(
            " So the answer is Li.",
            " So the answer is",
            "\nSo the final answer is: Li.",
            " the answer is Bo Ek",
        ),
        *(
            " [Search(maker)]",
            " [Search(",
            "\nFollow up: Who is it?\nIntermediate answer: Bo.",
            "\nFollow up: Who?",
        ),
        *(
            " <search> maker </search>",
            " <search> maker",
            " <answer> Li </answer>",
            " <think> Bo. </think>",
            "</s>",
        ),
    ]
)
sentences = st.builds(
    lambda words, end: " " + " ".join(words) + end, st.lists(WORDS, max_size=7), TURNS
)
texts = st.lists(sentences, min_size=1, max_size=4).map("".join)

questions = st.builds(
    lambda words, number: dl.Question(f"q{number}", f"Who {' '.join(words)} {number}?", ("Li",)),
    st.lists(WORDS, max_size=5),
    st.integers(0, 999),
)
several_questions = st.lists(questions, min_size=1, max_size=2, unique_by=lambda one: one.id)


# -- models and retrievers -------------------------------------------------------------------------


def choose(known: Sequence[T], text: str) -> T:
    """One of them, by the text alone."""
    return known[sha256(text.encode()).digest()[0] % len(known)]


class DrawnTokenizer(WordTokenizer):
    """With what a cache knows a prompt by."""

    def encode_prompt(self, prompt: Any, model: str = "") -> tuple[list[int], Any]:
        return self.encode_with_offsets(prompt.text)


class DrawnModel(ScriptedModel):
    """Answers each prompt by one of ``says``, and the same prompt always by the same; what it
    writes can be cached.
    """

    def __init__(self, says: Sequence[Say], looks: dict[str, float], marker: str) -> None:
        super().__init__((), looks=looks)
        self.tokenizer, self.says = DrawnTokenizer(marker), says

    def identity(self) -> dict[str, Any]:
        return self.identify(says=[repr(say) for say in self.says], looks=self.looks)

    def write(self, request: Any, seed: int | None = None, *, watch: Any = None) -> Any:
        say = choose(self.says, request.prompt.text)
        forced = self.tokenizer.cut(say.text)[: len(request.prefix)]  # of what it says itself
        with ONE:
            self.script = [replace(say, text=say.text[forced[-1][2] :] if forced else say.text)]
            return super().write(request, seed, watch=watch)

    def batch(self, size: int) -> Batch:
        return Batch(self, size)


class DrawnRetriever(ScriptedRetriever):
    """Finds its passages in an order that the query alone decides."""

    def search(self, query: str, k: int) -> list[dl.Passage]:
        first = choose(range(len(self.texts)), query)
        rotated = [*self.texts[first:], *self.texts[:first]]
        return [
            dl.Passage(str(self.texts.index(text)), "title", str(text), 1.0) for text in rotated[:k]
        ]


def measured(top: float) -> st.SearchStrategy[dict[str, float]]:
    """What is measured on some words; few values, so that equal ones and those at θ come up."""
    return st.dictionaries(
        WORDS, st.sampled_from([0.0, 0.05, 0.2, 0.25, 0.5, 0.9, 1.0]).map(lambda x: x * top)
    )


says = st.builds(Say, texts, entropy=measured(8.0), received=measured(1.0), doubt=measured(0.99))
models = st.builds(
    DrawnModel,
    st.lists(says, min_size=1, max_size=4),
    measured(9.0),
    marker=st.sampled_from(["▁", "Ġ"]),
)
retrievers = st.lists(texts.filter(str.strip), min_size=1, max_size=4, unique=True).map(
    lambda found: DrawnRetriever(*found)
)


# -- methods ---------------------------------------------------------------------------------------

#: Every method by name, in each variant that has it.
METHODS = [
    (one.name, variant)
    for variant in ("paper", "reference")
    for one in dl.methods()
    if variant == "paper" or one.name in dl.method.__globals__["released"].METHODS
]

#: What a setting may be, by its name; a method has those that are its own.
SETTINGS: Mapping[str, st.SearchStrategy[Any]] = {
    "threshold": st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5, 0.9, 1.0, 2.0]),
    "max_new_tokens": st.integers(1, 24),
    "top_k": st.integers(1, 3),
    "top_n": st.integers(1, 6),
    "n": st.integers(1, 9),
    "scale": st.sampled_from([None, "sentence"]),
    "doubt_limit": st.sampled_from([0.05, 0.5, 0.9]),
    "sentence_solver": st.sampled_from(["avg", "max", "min"]),
    "entity_solver": st.sampled_from(["avg", "max", "min", "first"]),
    "check_content_words": st.booleans(),
    "first": st.integers(1, 9),
    "beta": st.sampled_from([0.5, 1.0, 2.0]),
}


@functools.cache
def entities() -> Any:
    """A pipeline that finds entities."""
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    patterns = [{"label": "PERSON", "pattern": "Bo Ek"}, {"label": "PERSON", "pattern": "Li"}]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)  # type: ignore[attr-defined]
    return nlp


@st.composite
def methods(draw: st.DrawFn, name: str, variant: str) -> dl.Method:
    """A method by name, with values for some of its settings."""
    fixed = {"variant": variant, "nlp": entities() if name == "entity-rag" else None}
    has = dl.method(name, **fixed).settings
    able = {
        key: values for key, values in SETTINGS.items() if has.get(key, key) != key or key in has
    }
    able = {
        key: values for key, values in able.items() if not (key == "threshold" and has[key] is None)
    }
    return dl.method(name, **fixed, **draw(st.fixed_dictionaries({}, optional=able)))


# -- a lab and what it is asked --------------------------------------------------------------------


@dataclass
class Case:
    """A lab on a drawn model, questions, and the method that they are asked with."""

    lab: dl.Lab
    questions: list[dl.Question]
    method: dl.Method

    @property
    def nlp(self) -> Any:
        """The pipeline of the method, where it is not the default."""
        return entities() if self.method.name == "entity-rag" else None


def cases(name: str, variant: str) -> st.SearchStrategy[Case]:
    """Cases of one method."""
    labs = st.builds(lambda model, found: dl.Lab(model, retriever=found), models, retrievers)
    return st.builds(Case, labs, several_questions, methods(name, variant))


def some(quick: int) -> settings:
    """So many examples in the quick tier, and as many times more in the slow one as the profiles
    have it.
    """
    return settings(max_examples=max(1, quick * settings.default.max_examples // 30))  # type: ignore[attr-defined]


def any_method(*left_out: str) -> st.SearchStrategy[Case]:
    """Cases of any method in any variant."""
    known = [one for one in METHODS if one[0] not in left_out]
    return st.sampled_from(known).flatmap(lambda one: cases(*one))


# -- texts of others -------------------------------------------------------------------------------

#: Ten scripts, what a table, a page, a prompt or a list gives a meaning to, and characters of more
#: than one code point.
_SIGNS = (
    "abz 09 éß Ωσ Жя שא عل हि กำ あ漢 한 🎬 👩‍🚀 e\u0301 \u2028 \u00a0 , ; \t \" ' | = # \\ / [ ]"
    " { } ( ) < > & % \n -"
)
_MEANT = (
    "So the answer is Li.",
    "\nQuestion: Who?",
    "\nContext:\n[1] A film.",
    "[2] ",
    "</s>",
    "</div>",
    "<script>",
    "<!--",
    "&lt;",
    "{{ x }}",
    "{% if",
    "$x$",
    "</style>",
    "\"><b onload='x'>",
    "NA",
    "null",
    "1e5",
    "007",
    "=1+1",
    "...",
)
foreign = st.lists(
    st.sampled_from([*_SIGNS.split(" "), " "])
    | st.sampled_from(_MEANT)
    | st.text("abcdé", max_size=5),
    min_size=1,
    max_size=8,
).map("".join)
foreign_texts = foreign.map(lambda text: text.strip()).filter(bool)
