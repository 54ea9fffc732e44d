"""Encoders: SGPT's pooling and brackets against the formula written out, sentence-transformers
as it does it itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from scifact import mean_ndcg

from dragin_lab.errors import MissingPackageError, ModelError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.dense import Dense, Encoder, open_encoder
from dragin_lab.trace.trace import Passage

st = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed (extra: dense)"
)

TEXTS = [
    "Ann Lee was born in the city of Ulm.",
    "a",
    "The film Elm Road was directed by Ann Lee in 1946." * 3,
]


def saved(folder: Path, seed: int = 0) -> Path:
    """A tiny random model in a folder; GPT-Neo is what SGPT-125M is made of."""
    torch.manual_seed(seed)
    tf.AutoModel.from_config(lm_tiny.config_of("gpt_neo")).save_pretrained(folder)
    lm_tiny.byte_level().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("encoder") / "my-sgpt")


def written_out(model: Any, ids: list[int]) -> np.ndarray:
    """SGPT's vector of one text, a loop over its tokens."""
    with torch.no_grad():
        # (tokens, dimension)
        hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()
    total, weights = np.zeros(hidden.shape[1]), 0
    for place, state in enumerate(hidden, 1):
        total += place * state
        weights += place
    mean = total / weights
    return mean / np.sqrt((mean**2).sum())


def ids(encoder: Encoder, text: str, marks: str = "[]") -> list[int]:
    """The tokens that the model reads."""
    encoder._encode(encoder.model.encode, [text], marks)
    read: list[int] = encoder.model.tokenizer(text, truncation=True)["input_ids"]
    return read


def test_an_encoder_without_all_its_weights_is_refused(tmp_path: Path) -> None:
    weights = saved(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["wte.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are not in its files .*wte\.weight"):
        open_encoder(str(tmp_path))


@pytest.mark.parametrize("marks", ["[]", "{}"])
def test_sgpt_is_the_mean_weighted_by_place_between_brackets(folder: Path, marks: str) -> None:
    encoder = open_encoder(str(folder), "cpu")
    tokenizer = lm_tiny.byte_level()
    first, last = (tokenizer.convert_tokens_to_ids(mark) for mark in marks)
    passages = [Passage("", "", text) for text in TEXTS]
    beside: list[int] = []
    embeddings = encoder.model[0].model.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, args: beside.append(len(args[0])))
    vectors = encoder.encode_queries(TEXTS) if marks == "[]" else encoder.encode_passages(passages)
    # in a batch, a query's last bits hang on what is beside it
    assert marks == "{}" or beside == [1] * len(TEXTS)
    assert vectors.shape == (3, encoder.dimension)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        read = [first, *tokenizer.encode(text), last]
        assert ids(encoder, text, marks) == read
        np.testing.assert_allclose(vector, written_out(encoder.model[0].model, read), atol=2e-6)
    cut = ids(encoder, "word " * 500, marks)
    # so that the brackets still fit
    assert (len(cut), cut[-1]) == (encoder.facts["longest"], last) == (256, last)


def test_a_passage_is_its_title_and_its_text(folder: Path) -> None:
    encoder = open_encoder(str(folder), "cpu")
    one, same, untitled, other = (
        encoder.encode_passages([Passage("1", title, text)])
        for title, text in (
            ("Elm Road", "a film"),
            ("", "Elm Road a film"),
            ("", "a film"),
            (" ", "a film"),
        )
    )
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(untitled, other)


def test_a_bracket_behind_a_space_mark_stands_outside_the_tokenizers_own_marks() -> None:
    encoder = open_encoder("almanac", "cpu")
    read = encoder.model.tokenizer.convert_ids_to_tokens(ids(encoder, "Elm Road"))
    assert (read[:2], read[-1]) == (["[", "<s>"], "]")
    assert encoder.facts["model"] == encoder.name == "almanac"


def test_models_for_similarity_take_no_brackets_and_facts_name_the_weights(
    folder: Path, tmp_path: Path
) -> None:
    encoder = open_encoder(
        str(saved(tmp_path / "SGPT-tiny-weightedmean-nli-bitfit", seed=1)), "cpu"
    )
    assert encoder.facts["brackets"] is False
    own = open_encoder(str(folder), "cpu").facts
    assert (own["model"], own["pooling"], own["brackets"]) == ("my-sgpt", "weighted mean", True)
    assert own["weights_sha256"] != encoder.facts["weights_sha256"]
    assert ids(encoder, "a b") == ids(encoder, "a b", "{}") == lm_tiny.byte_level().encode("a b")


@pytest.mark.parametrize(("name", "says"), [("/nowhere/model", "no folder"), ("", "it is empty")])
def test_what_is_no_model_is_refused(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        open_encoder(name, "cpu")


# -- sentence-transformers -------------------------------------------------------------------------


def sentence_model(folder: Path, similarity: str | None = None) -> Path:
    """A tiny random BERT of sentence-transformers, mean pooling, made for a similarity."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(0)
    config = tf.BertConfig(
        vocab_size=len(lm_tiny.byte_level()),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    tf.BertModel(config).save_pretrained(folder / "bert")
    lm_tiny.byte_level().save_pretrained(folder / "bert")
    words = Transformer(str(folder / "bert"), max_seq_length=64)
    model = st.SentenceTransformer(
        modules=[words, Pooling(32, pooling_mode="mean")],
        prompts={"query": "ask: ", "document": ""},
        similarity_fn_name=similarity,
        device="cpu",
    )
    model.save(str(folder / "whole"))
    return folder / "whole"


def test_a_model_of_sentence_transformers_is_read_as_it_reads_itself(tmp_path: Path) -> None:
    folder = sentence_model(tmp_path)
    encoder = open_encoder(str(folder), "cpu")
    own = encoder.model.encode([f"ask: {text}" for text in TEXTS], normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), own, atol=1e-5)
    passages = encoder.encode_passages([Passage("1", "Elm", "Road")])
    np.testing.assert_allclose(
        passages, encoder.model.encode(["Elm Road"], normalize_embeddings=True), atol=1e-5
    )
    assert encoder.facts["pooling"].startswith("sentence-transformers ")
    assert (encoder.dimension, encoder.facts["similarity"]) == (32, "cosine")


def test_a_model_made_for_dot_products_ranks_as_it_ranks_itself(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed (extra: dense)")
    encoder = open_encoder(str(sentence_model(tmp_path, "dot")), "cpu")
    passages = [Passage(str(i), "", text) for i, text in enumerate(TEXTS)]
    hits = Dense(Corpus.from_passages(passages), encoder).search("Who?", len(passages))
    texts = [p.text for p in passages]
    own = encoder.model.similarity(
        encoder.model.encode_query(["Who?"]), encoder.model.encode_document(texts)
    )[0]
    assert [hit.text for hit in hits] == [texts[i] for i in own.argsort(descending=True)]
    assert hits[0].score == pytest.approx(float(own.max()), rel=1e-5)
    assert encoder.facts["similarity"] == "dot"


def test_an_encoder_of_another_similarity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match="compares vectors by euclidean; use an encoder made for cosine or dot"
    ):
        open_encoder(str(sentence_model(tmp_path, "euclidean")), "cpu")


def test_without_the_library_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[dense\]'"):
        open_encoder(str(folder), "cpu")


# -- a real encoder --------------------------------------------------------------------------------


def test_a_real_encoder_ranks_scifact() -> None:
    """nDCG@10 well above chance: an encoder that reads brackets or weights wrongly falls far
    below.
    """
    model = os.environ.get("DRAGIN_LAB_ENCODER")
    data = Path(os.environ.get("DRAGIN_LAB_DATA", "data")) / "scifact"
    if not model:
        pytest.skip(
            "no real encoder: set DRAGIN_LAB_ENCODER to the folder or the id of one, such as an"
            " SGPT"
        )
    if not data.exists():
        pytest.skip("no SciFact: set DRAGIN_LAB_DATA to the folder that holds scifact/")
    pytest.importorskip("faiss", reason="faiss-cpu is not installed (extra: dense)")
    assert mean_ndcg(data, lambda corpus: Dense(corpus, open_encoder(model))) > 0.4
