"""What a passage, a title, a question or an answer holds changes no stop of an episode, and no
tag of its page.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import html5lib
from given import foreign_texts, some
from hypothesis import given
from hypothesis import strategies as st
from scripted import Parrot

import dragin_lab as dl
from dragin_lab import views


class Outline:
    """A page as a browser reads it (html5lib): the tags with the names of their attributes, and its
    text.

    Every tag is closed in its turn, and there is no comment.
    """

    def __init__(self, page: str) -> None:
        parser = html5lib.HTMLParser()
        root = parser.parseFragment(page)
        assert [(code, where) for where, code, _ in parser.errors] == []
        nodes = list(root.iter())
        assert all(isinstance(node.tag, str) for node in nodes), "a comment"
        self.tags = {
            (node.tag.rpartition("}")[2], name) for node in nodes for name in ("", *node.attrib)
        }
        self.text = "".join(root.itertext())


class One:
    """Finds one passage."""

    def __init__(self, title: str, text: str) -> None:
        self.found = [dl.Passage("1", title, text, 1.0)]

    def search(self, query: str, k: int) -> list[dl.Passage]:
        return self.found


def ask(method: str, question: str, title: str, text: str, gold: str) -> dl.Trace:
    asked = dl.Question("1", question, (gold,))
    return dl.Lab(Parrot(), retriever=One(title, text)).ask(asked, method)


def stops(trace: dl.Trace) -> Any:
    """What was written, and where and why it ended."""
    return (
        trace.text,
        trace.answer,
        trace.ended,
        [(one.text, one.stopped) for one in trace.continuations],
    )


NAMES = ("sr-rag", "fl-rag", "fs-rag", "flare", "dragin")
METHODS = st.sampled_from(NAMES)


@cache
def own_tags() -> set[tuple[str, str]]:
    """The tags of pages whose texts hold none."""
    harmless = [
        ("Who made it?", "A", "A film.", "Li"),
        ("Who?", "", "a", "x"),
        ("Who? " * 300, "A", "a " * 900, "Li"),
    ]
    pages = [ask(name, *texts)._repr_html_() for name in NAMES for texts in harmless]
    return set().union(*(Outline(page).tags for page in pages))


@some(8)
@given(METHODS, foreign_texts, foreign_texts, foreign_texts)
def test_what_was_found_stops_nothing(method: str, title: str, text: str, gold: str) -> None:
    question = "Who made the thing?"
    assert stops(ask(method, question, title, text, gold)) == stops(
        ask(method, question, "A", "A film.", "Li")
    )


@some(8)
@given(METHODS, foreign_texts, foreign_texts, foreign_texts, foreign_texts)
def test_a_page_has_its_own_tags_and_shows_the_texts(
    method: str, question: str, title: str, text: str, gold: str
) -> None:
    trace = ask(method, question, title, text, gold)
    page = Outline(trace._repr_html_())
    assert page.tags - own_tags() == set()
    assert "".join(trace.question.text.split())[:60] in "".join(page.text.split())
    assert "".join(views.trace_text(trace).split())
