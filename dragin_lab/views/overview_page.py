"""A trace at a glance: the answer's words at their place, what was thrown away, and what came
instead under it.

A line that retrieves ends in the words that were thrown away, struck out. The next ones say what
was asked and found, and go on exactly under them: they begin with the words before the cut once
more, unseen. So lines wrap like any text, and as at most ``CARRY`` characters stand before a cut,
the place holds on a phone too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from dragin_lab.drawn import draws
from dragin_lab.trace.draft import character_words
from dragin_lab.trace.kept import list_written, with_passages
from dragin_lab.trace.trace import Query, Step, Trace
from dragin_lab.views.attribution import NO_SIGN, Sign, list_sources, overview_marks
from dragin_lab.views.facts import plural, shorten
from dragin_lab.views.pages import Page, render
from dragin_lab.views.rows import check_trace
from dragin_lab.views.texts import Texts

# characters before a cut on its line: at most, and where a line is begun for it
CARRY = 34
LAST = 24
LINES = 54  # lines of an overview; of a longer one the middle is folded

#: What stands on a word, by (step, "draft" or "continuation", token), from 1: such as the passage
#: it comes from.
Marks = Mapping[tuple[int, str, int], str | Sign]


@dataclass(frozen=True)
class WrittenWord:
    """A word as it was written, with the space before it."""

    text: str
    kept: bool
    level: int = 0  # its colour, 0 to 9
    hit: bool = False
    about: str = ""
    mark: Sign = NO_SIGN

    @property
    def css(self) -> str:
        classes = {f"h{self.level}": self.level, "hit": self.hit}
        return " ".join(name for name, on in classes.items() if on)


@dataclass
class Line:
    """A line of the overview: the words before the place at which it begins, then its own, or
    what was asked.
    """

    step: int | None  # position in ``Trace.steps``; None of the extraction
    before: str = ""
    words: list[WrittenWord] = field(default_factory=list)
    asked: str = ""
    found: str = ""

    @property
    def gone(self) -> bool:
        """Whether it ends in what was thrown away."""
        return bool(self.words) and not self.words[-1].kept

    @property
    def runs(self) -> list[tuple[bool, list[WrittenWord]]]:
        """Its words in runs, of which each was kept or thrown away."""
        runs = groupby(self.words, key=lambda word: word.kept)
        return [(kept, list(words)) for kept, words in runs]

    @property
    def kept(self) -> str:
        """The text on it before what was thrown away."""
        return self.before + "".join(word.text for word in self.words if word.kept)


@draws(Trace)
def overview(trace: Trace, marks: Marks | None = None) -> Page:
    """The episode in one picture: the answer's words, what was thrown away and what came instead,
    exactly under it.

    Colour is the score of a word, ◆ what fired, ⌕ what was asked and found. ``marks`` sets a sign
    on words of the texts that were written with passages in view; None: after ``lab.attribute`` the
    number of the passage that they are from. Long stretches in which nothing happens are folded.
    """
    texts = Texts(check_trace(trace))
    lines = find_lines(texts, overview_marks(trace) if marks is None else marks)
    inner = render(
        "overview.html",
        trace=trace,
        known=True,
        texts=texts,
        drawn=draw_lines(texts, lines),
        sources=list_sources(trace),
    )
    return Page(trace.question.text, inner)


def find_lines(texts: Texts, marks: Marks) -> list[Line]:
    """The lines of an episode in order."""
    trace = texts.trace
    lines = [Line(0)]
    for step in trace.steps:
        if step.draft is not None:
            add_words(lines, texts, step, "draft", marks)
        if step.query is not None:
            ask(lines, step, step.query)
        if step.continuation is not None:
            add_words(lines, texts, step, "continuation", marks)
    if trace.extraction is not None:
        answer = f"So the answer is {trace.extraction.text.strip()}"
        lines.append(Line(None, words=[WrittenWord(answer, True)]))
    return [line for line in lines if line.words or line.asked]


def add_words(lines: list[Line], texts: Texts, step: Step, name: str, marks: Marks) -> None:
    """Put the words of a step's text at their places."""
    # what an earlier text ended in was thrown away
    if lines[-1].gone:
        lines.append(Line(step.index, lines[-1].kept))
    for word in read_words(texts, step, name, marks):
        place_word(lines, step.index, word)


def place_word(lines: list[Line], step: int, word: WrittenWord) -> None:
    """Put a word at its place: behind the last one, or under what was thrown away last."""
    line = lines[-1]
    if word.kept and line.gone:
        lines.append(Line(step, line.kept))
    elif word.kept and line.words and "\n" in word.text.strip(" "):
        lines.append(Line(step))
    elif not (word.kept or line.gone) and len(line.kept) > CARRY:
        lines.append(Line(step, words=take_last(line)))
    line = lines[-1]
    if not (line.words or line.before):
        word = replace(word, text=word.text.lstrip())
    line.words.append(word)


def take_last(line: Line) -> list[WrittenWord]:
    """The last words of a line, which leave it: few, so that a cut has a line of its own."""
    place = len(line.words)
    room = LAST
    while place:
        room -= len(line.words[place - 1].text)
        if room < 0:
            break
        place -= 1
    moved = line.words[place:]
    del line.words[place:]
    if moved:
        moved[0] = replace(moved[0], text=moved[0].text.lstrip())
    return moved


def ask(lines: list[Line], step: Step, query: Query) -> None:
    """Say what was asked and found, where the text goes on."""
    last = lines[-1]
    before = "" if last.words and not last.gone else last.kept
    names = [passage.title or passage.id for passage in step.passages]
    titles = " · ".join(dict.fromkeys(names))
    asked = Line(step.index, before)
    asked.asked = shorten(query.text or "(empty query)", 90)
    asked.found = shorten(titles or "nothing was found", 70)
    lines += [asked, Line(step.index, before)]


def read_words(texts: Texts, step: Step, name: str, marks: Marks) -> Iterator[WrittenWord]:
    """The words of a text whole, each with the colour of its tokens, whether it was kept, fired,
    and its mark.
    """
    text = getattr(step, name)
    rows = texts.rows.get((step.index, name))
    end = step.kept_end(name)
    read = with_passages(step, name)
    columns = {} if rows is None else rows[["level", "opens", "about"]].to_dict("list")
    for word in character_words(text.text, text.offsets):
        tokens = range(word.start, word.stop)
        a = int(text.offsets[word.start, 0])
        b = int(text.offsets[word.stop - 1, 1])
        shown = text.text[a:b]
        if not shown:
            continue
        begins = b - len(shown.lstrip())
        kept = end is None or begins < end or not shown.strip()
        signs = [marks.get((step.index + 1, name, at + 1)) for at in tokens] if read else []
        given = next(filter(None, signs), "")
        mark = given if isinstance(given, Sign) else Sign(str(given))
        written = WrittenWord(shown, kept, mark=mark)
        if columns:
            best = max(tokens, key=columns["level"].__getitem__)
            facts = columns["about"][best].splitlines()[2:3]
            written = replace(
                written,
                level=columns["level"][best],
                hit=any(columns["opens"][word.start : word.stop]),
                about="".join(line for line in facts if line.startswith("word")),
            )
        yield written


def draw_lines(texts: Texts, lines: list[Line]) -> str:
    """The lines as HTML; where there are too many, the middle ones are said in one."""
    if len(lines) <= LINES:
        return render("lines.html", first=lines, folded="", last=[])
    first = lines[: LINES * 2 // 3]
    last = lines[-LINES // 3 :]
    folded = sum_up_between(texts.trace, first, last)
    return render("lines.html", first=first, folded=folded, last=last)


def sum_up_between(trace: Trace, first: list[Line], last: list[Line]) -> str:
    """What the steps between two stretches of lines came to; "" for none."""
    low = next(line.step for line in reversed(first) if line.step is not None)
    high = next(line.step for line in last if line.step is not None)
    steps = trace.steps[low + 1 : high]
    if not steps:
        return ""
    tokens = sum(len(text) for _, _, text in list_written(steps))
    gone = sum(step.discarded_tokens for step in steps)
    asked = sum(step.query is not None for step in steps)
    whole = plural(len(steps), "step")
    retrievals = plural(asked, "retrieval")
    thrown = f"{gone:,} of {plural(tokens, 'token')} thrown away"
    return f"{whole} more: {retrievals}, {thrown}"
