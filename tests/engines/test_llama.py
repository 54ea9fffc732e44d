"""llama.cpp in this process, on Almanac's own model as a float32 GGUF file: the episodes of the
transformers engine.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lm_tiny
import numpy as np
import pytest
from gguf_files import write_gguf
from lm_tiny import PARITY, decisions

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.catalog.by_name import method as make
from dragin_lab.core.episode import Bias, NextExample, Write
from dragin_lab.core.method import METHODS
from dragin_lab.engines import llama_context
from dragin_lab.engines.engine import stream_draft
from dragin_lab.engines.identity import hash_weights
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.trace.trace import Draft, Prompt

pytest.importorskip("gguf")
pytest.importorskip(
    "llama_cpp", reason="llama-cpp-python is not built; pip install '.[llama]' does it"
)

PROMPT = Prompt("Question: Who directed The Silent Fukain?\nAnswer:")
QUESTIONS = questions("2wikimultihopqa", "test")
#: Questions to each method in the slow tier: a part of what was compared once, 200.
MANY = int(os.environ.get("DRAGIN_LAB_LLAMA_QUESTIONS", "4"))
#: Every trigger that needs no pipeline that finds entities.
TRIGGERS = (
    "rind@0.25",
    "entropy@1.0",
    "margin",
    "random",
    "entropy-trend@1.0",
    "max-probability",
    "prefix-margin",
)


@cache
def almanac() -> LanguageModel:
    return LanguageModel.load(check=False)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "almanac.gguf"
    return write_gguf(path, almanac().model, almanac().tokenizer.hf.backend_tokenizer)


def open_lab(file: Path, **options: Any) -> dl.Lab:
    return dl.Lab(
        file,
        **{"engine": "llama.cpp", "tokenizer": "almanac", "dtype": "float32", "threads": 1}
        | options,
    )


@pytest.fixture(scope="module")
def lab(file: Path) -> Iterator[dl.Lab]:
    with open_lab(file) as lab:
        yield lab


def close(ours: Draft, theirs: Draft, within: float = 1e-4) -> None:
    assert (ours.ids.tolist(), ours.text, ours.stopped) == (
        theirs.ids.tolist(),
        theirs.text,
        theirs.stopped,
    )
    assert (ours.pieces, ours.offsets.tolist()) == (theirs.pieces, theirs.offsets.tolist())
    for name in ("entropy", "logprob", "received", "alternative_probs", "rows", "among", "states"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(
                one.astype(float), other.astype(float), atol=within, err_msg=name
            )


def test_no_prompt_ends_where_its_tokenizer_closes_it(
    lab: dl.Lab, file: Path, tmp_path: Path
) -> None:
    lm_tiny.closing(almanac().tokenizer.hf).save_pretrained(tmp_path)
    request = Write(PROMPT, 8)
    with open_lab(file, tokenizer=tmp_path) as closed:
        close(closed.model.write(request), lab.model.write(request))


def all_methods() -> list[Any]:
    """Those of the quick tier ask the engine for what differs: attention, probabilities, a bias,
    a prefix; and all.
    """
    methods = [m for m in map(make, METHODS) if "entities" not in m.trigger.needs]
    methods += [make(name, variant="reference") for name in REFERENCE_METHODS]
    for when in TRIGGERS:
        methods.append(
            make("flare", variant="paper", when=when, what="question" if "prefix" in when else None)
        )
    quick = [make("dragin", variant="reference"), make("flare-instruct"), methods[-1]]
    return [
        *((one, 1) for one in quick),
        *(pytest.param(one, MANY, marks=pytest.mark.slow) for one in methods),
    ]


@pytest.fixture(scope="module")
def reference() -> dl.Lab:
    """The lab of transformers; a draft that several methods begin with is written once."""
    return dl.Lab(almanac(), cache=True)


@pytest.mark.parametrize(("method", "asked"), all_methods(), ids=str)
def test_every_method_gives_the_same_episodes(
    lab: dl.Lab, reference: dl.Lab, method: Any, asked: int
) -> None:
    for question in QUESTIONS[:asked]:
        ours, theirs = lab.ask(question, method), reference.ask(question, method)
        assert (ours.text, ours.queries, ours.answer, ours.error) == (
            theirs.text,
            theirs.queries,
            theirs.answer,
            "",
        )
        assert decisions(ours) == decisions(theirs)


def test_side_by_side_dragins_episodes_are_the_same(lab: dl.Lab, reference: dl.Lab) -> None:
    method = make("dragin", max_new_tokens=16)
    for beside in lab.ask_many(QUESTIONS[:3], method, batch_size=2):
        alone = reference.ask(beside.question, method)
        assert (beside.text, beside.queries, decisions(beside)) == (
            alone.text,
            alone.queries,
            decisions(alone),
        )
        assert beside.provenance["batch"] == {"asked": 2, "size": 2, "notes": []}


def test_a_draft_has_the_numbers_of_transformers(lab: dl.Lab) -> None:
    draft = Write(PROMPT, 24, attention=True, among=True, hidden=2)
    close(lab.model.write(draft), almanac().write(draft))


def test_a_given_text_is_scored_as_in_transformers(lab: dl.Lab) -> None:
    text = " The director of the film is not known."
    close(
        lab.model.score(PROMPT, text, attention=True, hidden=2),
        almanac().score(PROMPT, text, attention=True, hidden=2),
        within=1e-3,
    )
    prompts, ids = (
        [PROMPT, Prompt("Context:\nA film.\n" + PROMPT.text)],
        almanac().tokenizer.encode(text, special=False),
    )
    ours, theirs = (lm.score_many(prompts, ids) for lm in (lab.model, almanac()))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_drafts_of_every_kind_have_them_side_by_side(lab: dl.Lab) -> None:
    drafts = [
        Write(PROMPT, 24, attention=True, hidden=1),
        Write(Prompt("Question: Who is Bo?\nAnswer:"), 9, stop=NextExample(("The",)), among=True),
        Write(
            PROMPT,
            8,
            bias=(Bias("The", 50.0, stop=1), Bias(" of", -50.0, first=3, stop=5)),
            hidden="last",
        ),
        Write(
            PROMPT, 12, prefix=tuple(almanac().tokenizer.encode("The river Zażółć", special=False))
        ),
        Write(
            PROMPT,
            12,
            bias=tuple(
                Bias(chr(b), 1000.0, first=i, stop=i + 1) for i, b in enumerate("€".encode())
            ),
        ),
        Write(Prompt("a" * 5000), 9),
    ]
    batch, ended = lab.model.batch(3), {}
    for key, draft in enumerate(drafts):
        batch.ask(key, draft)
    while len(batch):
        ended |= dict(batch.step())
    assert isinstance(ended.pop(5), ModelError)
    assert ended[4].pieces[:3] == (
        "<0xE2>",
        "<0x82>",
        "<0xAC>",
    ), "tokens within a character have its place"
    for key, ours in ended.items():
        close(ours, almanac().write(drafts[key]))


def test_what_a_prompt_begins_with_is_read_once_and_changes_no_bit(lab: dl.Lab) -> None:
    text = (
        "Question: Who is Bo?\nAnswer: Bo is a river.\n\nQuestion: Who directed The Silent"
        " Fukain?\nAnswer:"
    )
    draft = Write(
        Prompt(text, spans={"exemplars": (0, text.rindex("Question"))}), 12, attention=True
    )
    fresh = lab.model.write(draft)
    lab.model.write(Write(PROMPT, 4))
    unlike = lab.model.write(draft)
    again = lab.model.write(draft)
    assert (unlike.reused, 0 < again.reused < len(again.prompt_ids)) == (0, True)
    for one in (unlike, again):
        for name in ("entropy", "attention", "logprob"):
            assert getattr(one, name).tobytes() == getattr(fresh, name).tobytes()


def test_the_map_of_a_text_longer_than_what_is_computed_at_once_is_that_of_transformers(
    lab: dl.Lab,
) -> None:
    ids = [i % 1400 + 10 for i in range(520)]  # of 512 that are computed at once
    ours = lab.model.attend(ids)
    assert np.abs(ours - almanac().attend(ids)).max() < 1e-4
    assert lab.model.attend([]).shape == (len(ours), 0, 0)


@pytest.mark.parametrize("layer", [0, -2])
def test_any_layer_and_some_heads_are_captured(file: Path, layer: int) -> None:
    draft = Write(PROMPT, 12, attention=True)
    theirs = LanguageModel(almanac().model, almanac().tokenizer, layer=layer, heads=[1, 3])
    with open_lab(file, layer=layer, heads=[1, 3]) as lab:
        close(lab.model.write(draft), theirs.write(draft))
        assert (lab.model.layer, lab.model.heads) == (theirs.layer, [1, 3])


def test_two_streams_may_be_read_in_turn(lab: dl.Lab) -> None:
    prompts = PROMPT, Prompt("Question: Who is Bo?\nAnswer:")
    turns = list(
        zip(*(stream_draft(lab.model, Write(prompt, 8)) for prompt in prompts), strict=True)
    )
    expected = lab.model.write(Write(PROMPT, 8))
    assert [int(draft.ids[-1]) for draft, _ in turns] == expected.ids.tolist()


def test_sampled_drafts_are_drawn_by_their_seed(file: Path) -> None:
    with open_lab(file, sample=True) as lab:
        texts = [lab.model.write(Write(PROMPT, 24), seed).ids.tolist() for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0] != almanac().write(Write(PROMPT, 24)).ids.tolist()


def test_a_run_goes_on_with_another_lab_of_the_same_file(
    lab: dl.Lab, file: Path, tmp_path: Path
) -> None:
    method = make("wo-rag", max_new_tokens=8)
    lab.run(QUESTIONS[:1], method, output=tmp_path, progress=False)
    (path,) = tmp_path.rglob("predictions.jsonl")
    first = path.read_bytes()
    with open_lab(file) as other:
        other.run(QUESTIONS[:2], method, output=tmp_path, progress=False)
    assert path.read_bytes().startswith(first)


def test_an_interrupt_ends_the_draft_and_the_next_one_is_right(lab: dl.Lab) -> None:
    expected = lab.model.write(Write(PROMPT, 16))
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.1)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        _read_for_long(lab, begun)
    thread.join()
    assert lab.model.write(Write(PROMPT, 16)).entropy.tobytes() == expected.entropy.tobytes()


def _read_for_long(lab: dl.Lab, begun: threading.Event) -> None:
    for _ in range(10_000):
        begun.set()
        lab.model.attend([7] * 2000)


def test_a_closed_lab_and_a_fork_say_so(file: Path) -> None:
    with open_lab(file) as lab:
        model = lab.model
        fork = multiprocessing.get_context("fork")
        said = fork.SimpleQueue()
        child = fork.Process(target=_ask, args=(model, said))
        child.start()
        child.join(60)
        assert "in another process, whose threads a fork does not have" in said.get()
    with pytest.raises(ModelError, match=r"almanac\.gguf is closed; open a new Lab"):
        model.write(Write(PROMPT, 2))
    del lab, model
    gc.collect()


def _ask(model: Any, said: Any) -> None:
    try:
        model.write(Write(PROMPT, 2))
    except ModelError as error:
        said.put(str(error))


def test_it_says_what_runs_and_on_how_many_threads(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_lab(file, context=512) as lab:
        # Where the build has AMX, its name says between the two that it goes unused.
        assert "llama.cpp in this process on 1 threads, " in repr(lab.model)
        assert ", 512 tokens, " in repr(lab.model)
        assert repr(lab.model) in capfd.readouterr().err
        with pytest.raises(
            ModelError, match=r"do not fit into the 512 positions of almanac\.gguf; shorten"
        ):
            lab.model.write(Write(Prompt("a b " * 300), 8))
        assert lab.model.attend([7] * 512).shape[1:] == (512, 512)
        facts = lab.model.identity()
        assert facts["weights_sha256"] == hash_weights(None, [file])
        assert (facts["dtype"], facts["llama_cpp_python"] > "0.3") == ("float32", True)


def test_without_attention_it_reads_by_flash_attention_and_writes_the_same(
    lab: dl.Lab, file: Path
) -> None:
    with open_lab(file, attention=False) as flash:
        assert flash.model.no_attention == "it was opened with attention=False"
        assert not flash.model.context.names & {
            f"{llama_context.ROWS}-{i}" for i in range(flash.model.context.layers)
        }
        ours, theirs = (one.model.write(Write(PROMPT, 8)) for one in (flash, lab))
        assert ours.ids.tolist() == theirs.ids.tolist()
        np.testing.assert_allclose(ours.entropy, theirs.entropy, atol=1e-3)
        with pytest.raises(SettingError, match="attention=False"):
            flash.ask(QUESTIONS[0], "dragin")


def test_the_files_own_tokenizer_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    byte_level = LanguageModel.load(PARITY / "almanac-prototype", check=False)
    path = write_gguf(
        tmp_path / "tiny.gguf", byte_level.model, byte_level.tokenizer.hf.backend_tokenizer
    )
    with dl.Lab(path, engine="llama.cpp", dtype="float32", threads=1) as lab:
        close(lab.model.write(Write(PROMPT, 16)), byte_level.write(Write(PROMPT, 16)), within=1e-3)
        assert lab.model.eos == byte_level.eos
        assert lab.model.layer_chosen == byte_level.layer_chosen
    with pytest.raises(
        ModelError, match=r"the tokenizer is not that of tiny\.gguf, where other tokens"
    ):
        _ = dl.Lab(path, engine="llama.cpp", tokenizer="almanac").model


def test_a_build_with_amx_is_used_without_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = llama_context.load_bindings()
    system = bindings.llama_print_system_info()
    for says in (system.replace(b"AMX_INT8 = 1 | ", b""), system + b"AMX_INT8 = 1 | "):
        monkeypatch.setattr(bindings, "llama_print_system_info", lambda says=says: says)
        with open_lab(file) as lab:
            assert ("without AMX" in repr(lab.model)) == (b"AMX_INT8" in says)
            assert lab.model.write(Write(PROMPT, 2)).text


@pytest.mark.parametrize(
    ("machine", "build", "slow"),
    [
        ("AVX512", "AVX2 = 1 | ", True),
        ("AVX512", "AVX2 = 1 | AVX512 = 1 | ", False),
        ("DEFAULT", "NEON = 1 | ", False),
    ],
)
def test_a_build_that_leaves_the_machine_unused_is_named(
    lab: dl.Lab, monkeypatch: pytest.MonkeyPatch, machine: str, build: str, slow: bool
) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: machine)
    monkeypatch.setattr(lab.model.context, "system", build)
    assert (f"by a build without this machine's {machine}" in repr(lab.model)) == slow


def test_an_architecture_without_the_node_is_refused_for_attention_by_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_context, "ROWS", "kq_of_tomorrow")
    with open_lab(file) as lab:
        assert lab.ask(QUESTIONS[0], "flare", max_new_tokens=8).text
        with pytest.raises(
            SettingError,
            match=r"looks at attention, .*llama.cpp's llama has no node kq_of_tomorrow",
        ):
            lab.ask(QUESTIONS[0], "dragin")
    with pytest.raises(
        ModelError, match=r"layer=1: llama\.cpp's llama has no node kq_of_tomorrow; leave it out"
    ):
        _ = open_lab(file, layer=1).model


def test_what_cannot_be_opened_is_refused(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    (tmp_path / "folder").mkdir()
    cut.write_bytes(file.read_bytes()[:100_000])
    for source, error, match in (
        (cut, ModelError, "cut.gguf cannot be opened by llama.cpp .*compare its size"),
        (tmp_path / "folder", SettingError, "opens a GGUF file; give the path of one"),
        (None, SettingError, "opens a GGUF file; give the path of one"),
    ):
        with pytest.raises(error, match=match):
            _ = open_lab(source).model
    for argument in (
        {"threads": 0},
        {"context": 0},
        {"dtype": "bfloat16"},
        {"device": "cpu"},
        {"alternatives": 0},
    ):
        with pytest.raises(SettingError, match=next(iter(argument))):
            _ = open_lab(file, **argument).model
    for wrong in ({"layer": 9}, {"heads": [0, 7]}):
        with pytest.raises(ModelError, match=next(iter(wrong))):
            _ = open_lab(file, **wrong).model


def test_the_command_line_asks_it(file: Path, command: Any) -> None:
    chosen = (
        "--model",
        file,
        "--set",
        "engine=llama.cpp",
        "--set",
        "tokenizer=almanac",
        "--method",
        "dragin",
    )
    ran = command("ask", "Who directed The Silent Fukain?", *chosen, "--set", "max_new_tokens=8")
    assert (ran.code, "llama.cpp in this process on 1 threads" in ran.err) == (0, True)


class Spaced:
    """The vocabulary of a conversion that writes a space where the tokenizer writes its mark for
    one (Gemma 3's).
    """

    def to_str(self) -> str:
        spec = json.loads(almanac().tokenizer.hf.backend_tokenizer.to_str())
        spec["model"]["vocab"] = [
            [token.replace("▁", " "), score] for token, score in spec["model"]["vocab"]
        ]
        return json.dumps(spec)


def test_a_vocabulary_that_writes_its_spaces_otherwise_is_the_same(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "spaced.gguf", almanac().model, Spaced())
    with open_lab(path) as lab:
        assert lab.model.write(Write(PROMPT, 8)).text == almanac().write(Write(PROMPT, 8)).text
