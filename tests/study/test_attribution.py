"""Which words come from which passage, what a trace keeps of it, and what the retrievals of runs
were good for.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from answering import embedded
from scripted import Parrot, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.almanac import labels
from dragin_lab.core.episode import Write
from dragin_lab.data.datasets import FILES, needed_passages
from dragin_lab.errors import SettingError
from dragin_lab.results.funnel import count_funnel
from dragin_lab.study.attribution import (
    find_replaced,
    is_content,
    mark_tokens,
    plain_title,
    stands_in,
)
from dragin_lab.study.leaving_out import find_in_view, leave_out
from dragin_lab.trace.file import save_trace
from dragin_lab.trace.records import AttributedText
from dragin_lab.trace.trace import Draft
from dragin_lab.views import overview
from dragin_lab.views.attribution import attribution_page
from tools.runs import pack

QUESTION = "Who made the thing?"
WRONG, RIGHT, OTHER = "Ida Moe made it.", "Bo Ek made the thing.", "Nobody made it."


class Reader(Parrot):
    """Is sure of small words, and of names that stand in its prompt before the question."""

    name = "reader"

    def measure(self, request: Write, ids: list[int]) -> Draft:
        draft, read = super().measure(request, ids), request.prompt.text.partition(QUESTION)[0]
        words = [piece.strip("▁") for piece in draft.pieces]
        sure = np.array([0.9 if not word.istitle() or word in read else 0.01 for word in words])
        return replace(draft, logprob=np.log(sure))


def ask(
    *passages: str, method: str = "sr-rag", says: str = "", template: Any = None, **settings: Any
) -> Any:
    """The lab, and the trace of a question that finds these passages."""
    model = Reader(says or " It is by Bo Ek. So the answer is Bo Ek.")
    lab = dl.Lab(model, exemplars=template, retriever=ScriptedRetriever(*passages))
    return lab, lab.ask(QUESTION, method, gold="Bo Ek", top_k=max(len(passages), 1), **settings)


def marked(attribution: dl.Attribution) -> str:
    shown = {"sure": "", "guess": "~"}
    words = attribution.words.itertuples()
    return " ".join(word.word + shown.get(word.mark, f"[{word.passage}]") for word in words)


def test_a_token_is_sure_from_a_passage_or_a_guess() -> None:
    p_with, without = np.log([0.9, 0.9, 0.3, 0.3, 0.9]), np.log([0.5, 0.4, 0.2, 0.01, 0.01])
    nats = np.array([[0, 1], [0, 1], [0, 1], [3, 2], [2, 1]], float)
    text = AttributedText(0, "draft", ((0, 0), (0, 1)), p_with, without, nats, nats)
    assert mark_tokens(text, np.eye(2), 0.5, 1.0).tolist() == [-1, 0, 0, 1, 1]
    alone = AttributedText(0, "draft", (), p_with, p_with, nats[:, :0], nats[:, :0])
    assert mark_tokens(alone, np.zeros((0, 0)), 0.5, 1.0).tolist() == [-1, -1, 0, 0, -1]


def test_a_passage_that_is_left_out_leaves_the_others_their_numbers() -> None:
    _, trace = ask(WRONG, RIGHT, OTHER)
    step = trace.steps[0]
    in_view = find_in_view(step.passages_prompt, trace.steps)
    assert [place for place, _ in in_view] == [(0, 0), (0, 1), (0, 2)]
    rest = leave_out(step.passages_prompt, [in_view[0][1], in_view[2][1]])
    assert rest.part("passages") == f"[2] {RIGHT}\n"
    assert (rest.part("question"), rest.text[-len("Answer:") :]) == (QUESTION, "Answer:")
    none = leave_out(step.passages_prompt, [span for _, span in in_view])
    assert "passages" not in none.spans
    assert "Context:\nAnswer in the same format" in none.text
    # the same passages, found once more: those in view are the latest
    again = replace(step, index=1)
    assert [place for place, _ in find_in_view(step.passages_prompt, [step, again])] == [
        (1, 0),
        (1, 1),
        (1, 2),
    ]


def after(question: str, passages: Any, tail: str) -> str:
    """A layout of one's own, with the passages behind the question, the best last."""
    return f"{question}\n{' / '.join(p.text for p in reversed(passages or ()))}\nAnswer:{tail}"


@pytest.mark.parametrize("layout", ["dragin", "flare", "chat", after])
def test_passages_are_found_in_every_layout(layout: Any) -> None:
    lab, trace = ask(WRONG, RIGHT, template=dl.PromptTemplate(layout=layout))
    (text,) = lab.attribute(trace).record.texts
    assert sorted(text.passages) == [(0, 0), (0, 1)]
    assert text.nats.shape[1] == 2


def test_passages_in_the_text_are_left_out_there() -> None:
    """Search-R1: what was searched for stands in the answer, and stays there for the next
    search.
    """
    says = " <search> the thing </search> It is by Bo Ek. So the answer is Bo Ek."
    _, trace = ask(WRONG, RIGHT, method="search-r1", says=says, max_new_tokens=60)
    prompt = trace.steps[-1].prompt if trace.extraction_prompt is None else trace.extraction_prompt
    in_view = find_in_view(prompt, trace.steps)
    assert len(in_view) == 2 * sum(
        step.query is not None and bool(step.passages) for step in trace.steps
    )
    rest = leave_out(prompt, [span for (_, rank), span in in_view if rank == 0])
    assert WRONG not in rest.text
    assert f"Doc 2(Title: title) {RIGHT}" in rest.text


def test_what_a_window_dropped_was_not_in_view() -> None:
    model = Reader()
    model.context_window = 60
    lab = dl.Lab(
        model, exemplars=dl.PromptTemplate(), retriever=ScriptedRetriever(WRONG, RIGHT * 9, OTHER)
    )
    trace = lab.ask(QUESTION, "sr-rag", max_new_tokens=20)
    assert trace.lost["passages"]
    attribution = lab.attribute(trace)
    assert attribution.passages["in view"].tolist() == [True, False, False]
    assert (attribution.words["mark"] != "passage").all()


# -- marks -----------------------------------------------------------------------------------------


def test_words_are_marked_by_the_passage_that_they_come_from() -> None:
    lab, trace = ask(WRONG, OTHER, RIGHT)
    attribution = lab.attribute(trace)
    assert marked(attribution) == "It~ is by Bo[3] Ek.[3] So~ the answer is Bo[3] Ek.[3]"
    row = attribution.retrievals.iloc[0]
    assert (row["holds gold"], row["used"], row["which"], row["words"]) == (True, True, 3, 4)
    assert pd.isna(row["found"])  # no passage is labelled
    assert "2 guess" in repr(attribution)
    assert attribution.passages["words"].tolist() == ["", "", "Bo Ek. Bo Ek."]


def test_gold_passages_say_whether_one_was_found(tmp_path: Path) -> None:
    lab, trace = ask(WRONG)
    for gold, found in ((["title"], True), (["Another"], False)):
        attribution = lab.attribute(trace, gold=gold)
        assert attribution.retrievals["found"].tolist() == [found]
        loaded = dl.Trace.load(save_trace(trace, tmp_path / "t.trace"))
        assert dl.Attribution(loaded).retrievals["found"].tolist() == [found]
    assert "found no labelled passage" in attribution_page(attribution).text
    row = lab.attribute(trace).retrievals.iloc[0]
    assert (pd.isna(row["found"]), row["holds gold"]) == (True, False)
    assert "holds the gold answer: no" in attribution_page(lab.attribute(trace)).text
    unasked = replace(trace, question=dl.Question("q", QUESTION))
    assert lab.attribute(unasked).retrievals["holds gold"].isna().all()


def test_a_benchmarks_question_knows_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its text where it is Almanac's, else by id and text; another one of that id does not."""
    labelled = labels("2wikimultihopqa")[0]
    almanac = tuple(fact.passage for fact in labelled.facts)
    assert needed_passages(dl.Question("", labelled.question)) == almanac
    records = {
        "hotpotqa": [{"_id": "h", "question": "Who?", "supporting_facts": [["Bo Ek", 0]]}],
        "iirc": [
            {
                "questions": [
                    {
                        "qid": "q_1",
                        "question": " When?",
                        "context": [{"passage": "main"}, {"passage": "bo ek"}],
                    },
                    {"qid": "q_2", "question": "Why?", "context": []},
                ]
            }
        ],
    }
    for name, rows in records.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / FILES[name]).write_text(json.dumps(rows))
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path))
    for id, text in (("h", "Who?"), ("q_1", "When?")):
        assert [plain_title(one) for one in needed_passages(dl.Question(id, text))] == ["bo ek"]
    assert needed_passages(dl.Question("q_1", "Who is Ida?")) == ()
    assert needed_passages(dl.Question("q_2", "Why?")) == ()


@pytest.mark.parametrize("word", ["Ek.", "(Ek)", "ek", "Ek's"])
def test_a_word_stands_in_a_passage_whatever_stands_around_it(word: str) -> None:
    assert stands_in(word, dl.Passage("p", "Bo Ek", "He was born in 1905."))
    assert not stands_in(word, dl.Passage("p", "Eks", "Ekman was born."))


def test_words_of_content_are_no_stop_words() -> None:
    content = ("Bo", "1905.", "six", "May", "US", "l'auteur", "王", "didn't walk")
    assert [word for word in content if not is_content(word)] == []
    stop = ("the", "The", "of,", "may", "us", "it's", "—", "didn't", "")
    assert [word for word in stop if is_content(word)] == []
    assert is_content("die")
    assert not is_content("die", "de_pipeline 1 [sentencizer]")


class Unsure(Reader):
    """Writes "the" and a name that it reads in no passage, neither sure."""

    def measure(self, request: Write, ids: list[int]) -> Draft:
        draft = super().measure(request, ids)
        helped = WRONG in request.prompt.text
        words = [piece.strip("▁.") for piece in draft.pieces]
        likely = {"the": 0.4 if helped else 0.1, "Ek": 0.4 if helped else 0.05}
        return replace(draft, logprob=np.log([likely.get(word, 0.9) for word in words]))


def test_a_retrieval_is_not_used_by_a_stop_word_or_an_unlikely_word_from_elsewhere() -> None:
    lab = dl.Lab(Unsure(" It is the Ek. So the answer is Ek."), retriever=ScriptedRetriever(WRONG))
    attribution = lab.attribute(lab.ask(QUESTION, "sr-rag", gold="Bo Ek"))
    words = attribution.words.set_index("word")
    assert (words.loc["Ek.", "mark"] == "passage").all()
    assert not words.loc["Ek.", "stands"].any()
    assert attribution.retrievals[["used", "words", "which"]].to_numpy().tolist() == [[False, 0, 1]]
    page = attribution_page(attribution)
    assert "Ek.[1†]?" in page.text
    assert "not used" in page.text


def test_two_passages_in_which_a_word_stands_are_both_named() -> None:
    lab, trace = ask(RIGHT, OTHER, "Bo Ek was there.")
    attribution = lab.attribute(trace)
    words = attribution.words.set_index("word")
    assert set(words.loc["Bo", "also"]) == {"3"}
    assert "Bo[1, 3]" in attribution_page(attribution).text


class Turns:
    """A retriever that finds other passages in each search."""

    def __init__(self, *turns: list[str]) -> None:
        self.turns = list(turns)

    def search(self, query: str, k: int) -> list[dl.Passage]:
        texts = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        return [dl.Passage(str(i), text, text) for i, text in enumerate(texts)]


def test_a_passage_has_one_number_whichever_retrieval_brought_it() -> None:
    """And what was replaced before a word was kept is shown."""
    retriever = Turns([OTHER, WRONG], [WRONG, RIGHT], [RIGHT, OTHER])
    lab = dl.Lab(Reader(" It is by Bo Ek. Bo Ek did. So the answer is Bo."), retriever=retriever)
    trace = lab.ask(QUESTION, "fs-rag", gold="Bo Ek", top_k=2)
    attribution = lab.attribute(trace)
    table = attribution.passages
    assert dict(zip(table["number"], table["text"], strict=True)) == {1: OTHER, 2: WRONG, 3: RIGHT}
    assert table.groupby("retrieval")["number"].apply(list).tolist()[:3] == [[1, 2], [2, 3], [3, 1]]
    used = attribution.words[attribution.words["mark"] == "passage"]
    assert set(used["passage"]) == {3}
    assert [bar.name[:1] for bar in attribution.plot().data] == ["3", "2"]  # and two without words
    shade = attribution.shades[3]
    for page in (attribution_page(attribution), overview(trace)):
        assert f'c{shade}">3</sup>' in page.html or f'from c{shade}"' in page.html
        assert f"from passage 3, <bdi>{RIGHT}</bdi>" in page.html


def test_the_text_of_a_page_says_where_the_answer_was_asked_for() -> None:
    lab, trace = ask(RIGHT, says="It is by Bo Ek.")
    assert trace.extraction is not None
    text = attribution_page(lab.attribute(trace)).text
    assert "Ek.[1]  asked for the answer " in text
    assert f"So the answer is {trace.extraction.text.strip()}" in overview(trace).text


def test_without_a_passage_there_are_sure_words_and_guesses() -> None:
    lab, trace = ask(method="wo-rag")
    assert marked(lab.attribute(trace)) == "It~ is by Bo~ Ek.~ So~ the answer is Bo~ Ek.~"
    assert lab.attribute(trace).retrievals.empty
    nothing = dl.Lab(Reader(), retriever=lambda query, k: [])
    attribution = nothing.attribute(nothing.ask(QUESTION, "sr-rag"))
    assert attribution.retrievals[["used", "words"]].to_numpy().tolist() == [[False, 0]]
    assert attribution.retrievals["which"].isna().all()


def test_more_than_five_are_left_out_one_by_one() -> None:
    others = [f"Nothing {word}." for word in ("a", "b", "c", "d", "e")]
    lab, trace = ask(RIGHT, *others)
    (text,) = lab.attribute(trace).record.texts
    assert (text.exact, text.nats.shape[1]) == (False, 6)
    assert "Bo[1] Ek.[1]" in marked(dl.Attribution(trace))


def test_passages_of_equal_text_share_what_they_gave() -> None:
    lab, trace = ask(RIGHT, WRONG, RIGHT)
    attribution = lab.attribute(trace)
    (text,) = attribution.record.texts
    assert text.nats[:, 0].tolist() == text.nats[:, 2].tolist()
    np.testing.assert_allclose(attribution.tokens["passage 1"], 2 * text.nats[:, 0], rtol=1e-6)
    assert "Bo[1]" in marked(attribution)
    assert attribution.passages["number"].tolist() == [1, 2]  # one passage, twice in view
    assert attribution.passages["words"].tolist() == ["Bo Ek. Bo Ek.", ""]


def test_only_what_was_kept_is_attributed() -> None:
    """Behind the answer's line the model begins another example."""
    says = " It is by Bo Ek. So the answer is Bo Ek.\nQuestion: Who is Ida?"
    lab, trace = ask(RIGHT, says=says)
    assert trace.text.strip().endswith("So the answer is Bo Ek.")
    assert marked(lab.attribute(trace)).endswith("Bo[1] Ek.[1]")


@pytest.mark.parametrize("says", ["It is by Bo Ek.", "\nIt is by Bo Ek."])
def test_the_very_ids_are_scored(says: str) -> None:
    """A text without a space before it would merge with the prompt."""
    lab, trace = ask(RIGHT, says=says)
    first, *rest = lab.attribute(trace).record.texts
    np.testing.assert_allclose(
        first.with_all, trace.steps[0].continuation.logprob[: len(first.with_all)], atol=1e-5
    )
    assert [text.source for text in rest] == ["extraction"]


# -- what a trace keeps ----------------------------------------------------------------------------


@pytest.mark.parametrize("slim", [False, True])
def test_a_saved_trace_keeps_its_attribution(slim: bool, tmp_path: Path) -> None:
    lab, trace = ask(WRONG, RIGHT)
    before = lab.attribute(trace, sure=0.6)
    again = dl.Attribution(dl.Trace.load(save_trace(trace, tmp_path / "t.trace", slim=slim)))
    assert again.record.sure == 0.6
    assert again.tokens.equals(before.tokens)
    assert again.retrievals.equals(before.retrievals)


def test_an_attribution_belongs_to_its_trace() -> None:
    lab, trace = ask(WRONG, RIGHT)
    with pytest.raises(SettingError, match=r"not attributed; lab\.attribute"):
        dl.Attribution(trace)
    lab.attribute(trace)
    with pytest.raises(SettingError, match="was changed since"):
        dl.Attribution(replace(trace, steps=[]))
    assert lab.branch(trace, step=1, passages=[WRONG]).attributed is None


class Other(Reader):
    """Another model: sure of everything."""

    def measure(self, request: Write, ids: list[int]) -> Draft:
        draft = super().measure(request, ids)
        return replace(draft, logprob=np.log(np.full(len(ids), 0.9)))


def test_another_model_and_one_that_scores_nothing_are_refused() -> None:
    _, trace = ask(WRONG, OTHER)
    with pytest.raises(SettingError, match=r"'It' .* 0\.900 under this lab's model, and 0\.010"):
        dl.Lab(Other(), retriever=ScriptedRetriever()).attribute(trace)

    class Bare:
        name, tokenizer, write = "bare", None, None

    with pytest.raises(SettingError, match="bare scores no given text"):
        dl.Lab(Bare(), retriever=ScriptedRetriever()).attribute(trace)
    with pytest.raises(SettingError, match="sure=2 is out of range"):
        ask(WRONG)[0].attribute(trace, sure=2)


def test_attention_and_the_effect_of_having_found_nothing_are_seen_when_asked_for() -> None:
    lab, trace = ask(WRONG, RIGHT)
    plain = lab.attribute(trace)
    assert plain.tokens["attention 1"].isna().all()
    assert plain.retrievals["effect"].isna().all()
    more = lab.attribute(trace, attention=True, effect=True)
    paid = more.tokens[["attention 1", "attention 2"]]
    assert ((paid > 0) & (paid < 1)).all(axis=None)
    assert more.retrievals["effect"].tolist() == [0.0]  # it says the same


def test_what_a_retrieval_replaced() -> None:
    lab, trace = ask(WRONG, method="flare", threshold=0.5)
    step = next(
        step for step in trace.steps if step.draft is not None and step.continuation is not None
    )
    assert find_replaced(trace, step) == ("It is by Bo Ek.", "It is by Bo Ek.")
    row = lab.attribute(trace).retrievals.set_index("step").loc[step.index + 1]
    assert (row["thrown away"], row["lost"]) == ("It is by Bo Ek.", False)


def test_a_trace_just_written_has_the_values_of_one_that_was_saved(tmp_path: Path) -> None:
    """Prompts of a running lab know the ids of the answer so far, which move with the text
    before them.
    """
    lab = embedded()
    trace = lab.ask(
        "In which town was the director of The Ashen Rooftop born?", "fs-rag", max_new_tokens=24
    )
    assert any(step.passages_prompt.written for step in trace.steps)
    loaded = dl.Trace.load(trace.save(tmp_path / "a.trace"))
    now, then = (lab.attribute(one).tokens for one in (trace, loaded))
    numbers = [name for name in now if name.startswith(("p_", "passage "))]
    np.testing.assert_allclose(
        now[numbers].to_numpy(float), then[numbers].to_numpy(float), atol=1e-3
    )


# -- the retrievals of whole runs ------------------------------------------------------------------

ASKED = [
    {"id": "a", "question": QUESTION, "answer": "Bo Ek"},
    {"id": "b", "question": QUESTION, "answer": "Ida Moe"},
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dl.Runs:
    lab = dl.Lab(Reader(), retriever=ScriptedRetriever(WRONG, RIGHT))
    output = tmp_path_factory.mktemp("runs")
    lab.run(ASKED, ["sr-rag", "wo-rag"], output=output, progress=False)
    # of a finished run
    return lab.run(ASKED, ["sr-rag", "wo-rag"], output=output, progress=False, attribute=True)


def test_a_run_says_what_each_retrieval_was_good_for(runs: dl.Runs) -> None:
    shown = (
        runs.retrievals[["id", "method", "holds gold", "used", "which", "right"]]
        .to_numpy()
        .tolist()
    )
    assert shown == [["a", "sr-rag", True, True, 2, True], ["b", "sr-rag", True, True, 2, False]]
    row = runs.funnel_table().loc["sr-rag"]
    assert (row["asked"], row["holds gold"], row["used"], row["right, of the used"]) == (
        2,
        1,
        1,
        0.5,
    )
    assert row["retrievals a used one"] == 1
    assert np.isnan(row["lost"])
    assert runs.trace("a", "sr-rag").attributed is not None


def test_the_funnel_is_drawn_from_its_table(runs: dl.Runs) -> None:
    links = runs.funnel().data[0].link
    assert list(links.value) == [2, 2, 1, 1]
    assert links.customdata[-1] == "1 retrievals of sr-rag: used → wrong answer"
    assert runs.funnel(by="dataset").data[0].node.label[0] == "questions 2"


def test_the_methods_of_a_funnel_keep_their_order(runs: dl.Runs) -> None:
    asked = pd.concat([runs.retrievals.assign(method=name) for name in ("z", "a")])
    outcomes = asked[["dataset", "id", "method"]].assign(tokens=1)
    assert list(count_funnel(asked, outcomes, "method").index) == ["z", "a"]


def test_runs_without_their_traces_keep_it(runs: dl.Runs, tmp_path: Path) -> None:
    read = dl.Runs.load(pack(runs, tmp_path / "runs.zip"))
    pd.testing.assert_frame_equal(read.retrievals, runs.retrievals)


def test_what_was_not_attributed_says_so(tmp_path: Path) -> None:
    lab = dl.Lab(Reader(), retriever=ScriptedRetriever(OTHER))
    plain = lab.run(ASKED, "sr-rag", output=tmp_path, progress=False, traces=False)
    with pytest.raises(SettingError, match="no answer of these runs is attributed"):
        _ = plain.retrievals
    with pytest.warns(UserWarning, match="2 of 2 answers have no trace"):
        lab.run(ASKED, "sr-rag", output=tmp_path, progress=False, attribute=True)
    with pytest.raises(SettingError, match="leave traces=False out"):
        lab.run(
            ASKED, "sr-rag", output=tmp_path / "else", progress=False, attribute=True, traces=False
        )
