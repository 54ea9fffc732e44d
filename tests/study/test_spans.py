"""Labelled facts in free text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import ELM_ROAD

from dragin_lab.almanac.facts import Fact
from dragin_lab.study.truth import find_facts

FILM = DIRECTOR, YEAR = ELM_ROAD.facts
TOWN = replace(YEAR, relation="birthplace", value="Elmouth")
COUNTRY = replace(YEAR, subject="Elmouth", relation="country", value="Dorvia")
MAYOR = replace(YEAR, subject="Elmouth", relation="mayor", value="Max Malthorn")


@pytest.mark.parametrize(
    ("text", "facts", "values", "end"),
    [
        (
            "Elm Road was directed by Ada Orleth. Ada Orleth was born in 1938.",
            FILM,
            "++",
            "all right",
        ),
        (
            "Elm Road is a film by Ada Orleth. Clearly, Ada Orleth was born in 1939.",
            FILM,
            "+-",
            "first wrong",
        ),
        (
            "Here, the film  Elm Road was directed by Max Orleth. Max Orleth was born in 1938.",
            FILM,
            "-",
            "first wrong",
        ),
        ("Elm Street is a film by Ada Orleth.", (DIRECTOR,), "", "lost"),
        ("Ada Orleth was born in the town of Elmouth.", (YEAR,), "", "lost"),
        (
            "Ada Orleth was born in the year 1938. Ada Orleth was born at Elmouth.",
            (TOWN,),
            "+",
            "all right",
        ),
        ("The town of Elmouth lies in Dorvia.", (COUNTRY,), "+", "all right"),
        ("Elmouth has Max Malthorn as its mayor.", (MAYOR,), "+", "all right"),
        ("Elmouth is led by the mayor Max Dorn.", (MAYOR,), "-", "first wrong"),
        ("", (YEAR,), "", "lost"),
    ],
)
def test_facts_are_found_in_text(text: str, facts: tuple[Fact, ...], values: str, end: str) -> None:
    found, ended = find_facts(text, facts)
    assert "".join("+" if one.right else "-" for one in found) == values
    assert ended == end
    for one in found:
        assert (text[one.start : one.end] == one.fact.value) == one.right
        assert "the" not in text[one.start : one.end].split()
