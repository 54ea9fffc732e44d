"""Labelled spans and facts in free text: the forms that others publish, how they are scored and
judged.
"""

from __future__ import annotations

import json
import math
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spacy
from answering import embedded
from factories import ELM_ROAD
from scripted import ScriptedRetriever

import dragin_lab as dl
from dragin_lab import almanac, views
from dragin_lab.almanac.facts import Fact
from dragin_lab.catalog.by_name import method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.errors import DataError, SettingError
from dragin_lab.study.spans import read_texts, score_tokens
from dragin_lab.study.truth import find_facts

OWN = {"prompt": "Who?", "text": "It is Bo Ek.", "start": 6, "end": 11, "label": "not supported"}
LONGFACT = {
    "subset": "biography",
    "model": "tiny",
    "conversation": [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "It is Bo Ek of Ur."},
    ],
    "annotations": [
        {"span": "Bo Ek", "label": "Not Supported", "index": 6},
        {"span": "Ur", "label": "Supported", "index": 15},
        {"span": "It", "label": "N/A", "index": 0},
        {"span": "of", "label": "Supported", "index": 3},
    ],
}
RAGTRUTH = {
    "id": "0",
    "source_id": "7",
    "model": "tiny",
    "response": "It is Bo Ek.",
    "split": "test",
    "labels": [{"start": 6, "end": 11, "text": "Bo Ek", "label_type": "Evident Conflict"}],
}
PSILOQA = {
    "id": "x",
    "question": "Who?",
    "llm_answer": "It is Bo Ek.",
    "labels": [[6, 11]],
    "wiki_passage": "…",
}
WORDS = [("It", False), ("is", False), ("Bo", True), ("Ek.", True)]


def listed(spans: dl.Spans) -> list[tuple[str, bool]]:
    return [
        (one.text[span.start : span.end], span.missing)
        for one, own in spans.texts.items()
        for span in own
    ]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_known_facts_of_smollm2_are_a_file_of_spans() -> None:
    """Its answers to 420 questions (docs/results/real-model.md: 231 right), each sentence a
    span.
    """
    spans = dl.Spans.load(Path(__file__).parents[2] / "corpora/smollm2_facts.jsonl.gz")
    assert repr(spans) == "Spans(420 in 420 texts, 189 not supported)"


@pytest.mark.parametrize(
    ("row", "spans", "chat"),
    [
        (OWN, [("Bo Ek", True)], False),
        (OWN | {"label": 0, "chat": True}, [("Bo Ek", False)], True),
        (LONGFACT, [("Bo Ek", True), ("Ur", False), ("of", False)], True),
        (RAGTRUTH, WORDS, True),
        (RAGTRUTH | {"labels": [{"start": 0, "end": 5, "text": "Bo Ek"}]}, WORDS, True),
        (RAGTRUTH | {"labels": [{"start": "a", "end": None, "text": "Bo Ek"}]}, WORDS, True),
        (PSILOQA, WORDS, True),
        (
            PSILOQA | {"llm_answer": "北京，1902年。", "labels": [[3, 7]]},
            [("北", False), ("京", False), ("1902", True), ("年", False)],
            True,
        ),
    ],
)
def test_the_forms_that_are_published_are_read(
    tmp_path: Path, row: Any, spans: Any, chat: bool
) -> None:
    write(tmp_path / "source_info.jsonl", {"source_id": "7", "prompt": "Who?"})
    read = dl.Spans.load(write(tmp_path / "response.jsonl", row))
    assert listed(read) == spans
    assert [(one.prompt, one.chat) for one in read.texts] == [("Who?", chat)]


def test_spans_of_one_text_come_together_and_their_frame_gives_them_back(tmp_path: Path) -> None:
    spans = dl.Spans.load(
        [OWN, OWN | {"start": 0, "end": 2, "label": "S"}, OWN | {"prompt": "What?"}]
    )
    assert [len(own) for own in spans.texts.values()] == [2, 1]
    spans.add("Who?", "It is Bo Ek.", 3, 5, "supported")
    assert repr(spans) == "Spans(4 in 2 texts, 2 not supported)"
    spans.frame.to_json(tmp_path / "mine.jsonl", orient="records", lines=True)
    assert dl.Spans.load(tmp_path / "mine.jsonl") == dl.Spans.load(spans.frame) == spans


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "Who?", "text": "Bo", "start": 0, "end": 2}, "row 1: has no label;"),
        (
            {"prompt": "Who?", "text": "Bo"},
            "row 1: has no start; a row has prompt, text, start, end, label; or",
        ),
        (OWN | {"end": 99}, "start=6, end=99: the text has characters 0 to 12"),
        (OWN | {"start": "x"}, "start='x'"),
        (
            OWN | {"label": "perhaps"},
            "label='perhaps' is not a label; give 'supported' or 'not supported'",
        ),
        (
            RAGTRUTH | {"source_id": "8"},
            "has no prompt, and none is beside it in source_info.jsonl",
        ),
        (PSILOQA | {"labels": "6-11"}, "labels '6-11': give a list of spans"),
        (PSILOQA | {"labels": [[9, 6]]}, "row 1: label start=9, end=6: the text has no such place"),
        (
            RAGTRUTH | {"prompt": "Who?", "labels": [{"start": 0, "end": 2, "text": "Ada"}]},
            "row 1: label start=0, end=2: 'Ada'",
        ),
        (LONGFACT | {"annotations": []}, "holds no span"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, row: Any, says: str) -> None:
    path = write(tmp_path / "spans.jsonl", row)
    with pytest.raises(DataError) as caught:
        dl.Spans.load(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_labels_that_stand_nowhere_and_spans_with_both_are_left_out_and_said() -> None:
    gone = {"span": "gone", "label": "Supported", "index": None}
    with pytest.warns(
        UserWarning, match="1 labels are left out: list, row 1: 'gone' stands not once in its text"
    ):
        assert (
            len(dl.Spans.load([LONGFACT | {"annotations": [gone, *LONGFACT["annotations"]]}])) == 3
        )
    with pytest.warns(
        UserWarning, match="1 spans are labelled as supported and as not supported: left out"
    ):
        assert len(dl.Spans.load([OWN, OWN | {"label": "S"}, OWN | {"start": 0, "end": 2}])) == 1
    spans = dl.Spans.load([OWN])
    with pytest.raises(
        SettingError, match="'Bo Ek' has the other label already; a span has one label"
    ):
        spans.add("Who?", "It is Bo Ek.", 6, 11, "supported")
    with pytest.raises(SettingError, match="not all white space"):
        spans.add("Who?", "It is.", 2, 3, "supported")


@pytest.fixture(scope="module")
def lab() -> dl.Lab:
    return embedded()


#: ROC area with its interval over questions, and average precision, recorded at commit e96b164a.
RECORDED = {
    "entropy-trend": (0.9583, 0.8796, 1.0, 0.9693),
    "random": (0.5990, 0.3634, 0.7965, 0.6356),
    "rind": (1.0, math.nan, math.nan, 1.0),
}


def test_labels_of_almanac_are_judged_as_recorded(lab: dl.Lab) -> None:
    labels = almanac.labels("2wikimultihopqa", "dev", 12)
    judged = lab.judge(dl.Spans.of_labels(labels, lab.template(method("wo-rag"))))
    rows = judged.table.set_index("trigger").loc[list(RECORDED)]
    np.testing.assert_allclose(rows.to_numpy(float), list(RECORDED.values()), atol=1e-4)
    frame = judged.frame
    assert frame["missing"].sum() == sum(fact.missing for one in labels for fact in one.facts)
    assert list(frame["words"]) == [fact.value for one in labels for fact in one.facts]
    assert {line.legendgroup for line in views.roc(frame, triggers=["rind", "entropy"]).data} >= {
        "rind",
        "entropy",
    }


def test_a_tokenizer_may_compose_a_text_and_one_text_does_not_refuse_the_others() -> None:
    class Reads:
        """Gives texts back composed, a token a character, and one not at all."""

        def score(self, prompt: dl.Prompt, text: str) -> Any:
            text = "" if "lost" in text else unicodedata.normalize("NFC", text)
            offsets = np.array([(i, i + 1) for i in range(len(text))]).reshape(-1, 2)
            return SimpleNamespace(text=text, offsets=offsets)

    spans, text = dl.Spans(), unicodedata.normalize("NFD", " Beyonc\u00e9 sang in 1902.")
    spans.add("Who?", "lost", 0, 4, True)
    spans.add("Who?", text, 1, 9, False)
    spans.add("Who?", text, text.index("1902"), text.index("1902") + 4, True)
    with pytest.warns(
        UserWarning, match="1 left out: text 0, 'lost', which the tokenizer does not give back"
    ):
        ((number, _, own, draft),) = read_texts(Reads(), spans)
    assert (number, ["".join(draft.text[i] for i in tokens) for _, tokens in own]) == (
        1,
        ["Beyonc\u00e9", "1902"],
    )
    spans.texts.popitem()
    with pytest.raises(SettingError, match="no text can be judged; 1 left out"):
        list(read_texts(Reads(), spans))


def test_a_model_that_reads_no_given_text_is_refused_by_name() -> None:
    class Writes:
        def write(self) -> None: ...

        def __repr__(self) -> str:
            return "Writes"

    with pytest.raises(
        SettingError, match="Writes cannot be given a text to read; open the model by name"
    ):
        dl.Lab(Writes(), corpus="almanac").judge(dl.Spans.load([OWN]))
    with pytest.raises(SettingError, match=r"give dl\.Spans\.load"):
        embedded().judge([OWN])


@pytest.mark.parametrize(
    ("name", "theta", "trigger"), [("dragin", 1e6, "rind"), ("flare", 1.0, "probability")]
)
def test_scores_are_those_of_the_methods(
    lab: dl.Lab, name: str, theta: float, trigger: str
) -> None:
    """What a real episode held against its θ is what is ranked here: a word's score is its
    tokens' largest.
    """
    bare = lab.replace(retriever=ScriptedRetriever(), exemplars=PromptTemplate())
    trace = bare.ask("Who is the mother of the director of Elm Road?", name, threshold=theta)
    step = next(one for one in trace.steps if one.draft is not None)
    assert step.draft is not None
    scores = score_tokens(step.draft, load_pipeline())[trigger]
    assert len(step.words) > 5
    highest = [scores[a:b].max() for a, b in step.words.spans]
    np.testing.assert_allclose(highest, step.words.score, rtol=1e-4, atol=1e-6)


def test_scores_of_the_other_triggers(lab: dl.Lab) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ada"}])  # type: ignore[attr-defined]
    made = lab.model.score(
        PromptTemplate().render("Who?"), " Ada was born in 1938. She lived at Elmouth. She left."
    )
    scores = score_tokens(made, load_pipeline(nlp))
    assert set(scores) >= {
        "probability",
        "rind",
        "entropy-trend",
        "entropy",
        "margin",
        "random",
        "entity",
    }
    margins = made.alternative_probs[:, 1].astype(float) / made.alternative_probs[:, 0]
    np.testing.assert_allclose(scores["margin"], margins)
    np.testing.assert_allclose(scores["entropy"], made.entropy)
    np.testing.assert_allclose(scores["probability"], doubts(made.logprob))
    assert (scores["rind"][scores["entropy"] == 0] == 0).all(), "attention times entropy"
    assert "".join(made.text[a:b] for a, b in made.offsets[scores["entity"] > 0]).strip() == "Ada"
    assert set(score_tokens(made, load_pipeline())) == set(scores) - {"entity"}


# -- facts in a text -------------------------------------------------------------------------------

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
