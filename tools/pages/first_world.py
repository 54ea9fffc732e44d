"""Another world with models of its own: the passages that the parity cases are asked on, an early version of Almanac.

``tests/parity/sets.json`` has the passages of 120 films and of their directors, and the two models beside it were
taught some of them. The questions are made here, in the forms that those models were taught. A third of the films
serve development and the others test; no film is in both, and none that an exemplar names is in either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import dragin_lab as dl
from dragin_lab.core.prompts import Exemplar
from tools.pages.base import ROOT
from tools.pages.triggers_work import World

PARITY = ROOT / "tests" / "parity"
MODELS = tuple(str(PARITY / "models" / name) for name in ("almanac-prototype", "almanac-small"))
SET = "films"

_DIRECTOR = re.compile(r"[Dd]irected by (\w+ \w+)")
_COUNTRY = re.compile(r"(?:from|made in) (\w+)")
_LIFE = re.compile(r"\((\d+ \w+ \d{4}) - (\d+ \w+ \d{4})\)")


def first_world() -> World:
    """The passages, the two exemplars of the parity cases, and ``questions``."""
    given = json.loads((PARITY / "sets.json").read_text(encoding="utf-8"))["almanac"]
    exemplars = [Exemplar(one["question"], one["rationale"], one["answer"]) for one in given["exemplars"]]
    asked = questions({one["title"]: one["text"] for one in given["passages"]}, exemplars)
    return World("almanac-1", dl.Corpus.load(given["passages"]), {SET: exemplars}, lambda _, split: asked[split])


def questions(texts: Mapping[str, str], exemplars: Sequence[Exemplar]) -> dict[str, list[dl.Question]]:
    """Development's and test's questions: when a director was born, who died later, whether two countries are the same.

    ``texts`` are the passages by their title.
    """
    films = [film for film in sorted(texts) if _DIRECTOR.search(texts[film])]
    films = [film for film in films if not any(film in one.question for one in exemplars)]
    parts = {"dev": films[::3], "test": [film for i, film in enumerate(films) if i % 3]}
    return {split: list(_asked(split, part, texts)) for split, part in parts.items()}


def _asked(split: str, films: Sequence[str], texts: Mapping[str, str]) -> Iterator[dl.Question]:
    lives = {film: _found(_LIFE, texts[_found(_DIRECTOR, texts[film])[0]]) for film in films}
    died = {film: datetime.strptime(life[1], "%d %B %Y") for film, life in lives.items()}
    country = {film: _found(_COUNTRY, texts[film])[0] for film in films}
    for i, film in enumerate(films):
        one, two = films[i - 1], films[i - 2]
        later = max(film, one, key=died.__getitem__)
        alike = next((other for other in films if other != film and country[other] == country[film]), two)
        other = alike if i % 2 else two
        same = "yes" if country[other] == country[film] else "no"
        for kind, text, gold in (
            ("born", f"When was the director of film {film} born?", lives[film][0]),
            ("later", f"Which film has the director who died later, {film} or {one}?", later),
            ("country", f"Are the films {film} and {other} from the same country?", same),
        ):
            yield dl.Question(f"{split}-{kind}-{i:03}", text, (gold,))


def _found(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.search(text)
    assert found is not None, text
    return found.groups()
