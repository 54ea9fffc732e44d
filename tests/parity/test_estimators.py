"""Triggers named after estimators of uncertainty, held to lm-polygraph 0.7.0's own code on the same arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from factories import make_continuation, make_prompt
from transformers import AutoModelForCausalLM

from dragin_lab.almanac import embedded_model_path
from dragin_lab.catalog.methods import TRIGGERS, method
from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Write
from dragin_lab.core.needs import measure_rows, resolve_layers
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.data.datasets import demo_questions
from dragin_lab.data.templates import default_template
from dragin_lab.model.load import LanguageModel
from tools import real

pytestmark = pytest.mark.real

#: An estimator of theirs: the scores of some texts, from what their calculators give of each.
Estimator = Callable[[dict[str, Any]], np.ndarray]
LAYERS, HEADS, VOCABULARY = 7, 3, 50
MEASURES = ("renyi:0.5@2", "renyi:2", "fisher-rao@2", "self-certainty")


@pytest.fixture(scope="module")
def polygraph() -> Iterator[Callable[..., Estimator]]:
    """Makes an estimator of theirs from its file, class and settings; what their packages import is not needed."""
    folder = real.POLYGRAPH.folder
    if not folder.is_dir():
        pytest.skip("lm-polygraph's estimators are not here; make real fetches them")
    names = ("", ".estimators", ".utils", ".utils.common")
    packages: dict[str, Any] = {f"lm_polygraph{name}": ModuleType(f"lm_polygraph{name}") for name in names}
    packages["lm_polygraph.estimators"].__path__ = [str(folder)]
    packages["lm_polygraph.utils.common"].polygraph_module_init = lambda init: init
    with mock.patch.dict(sys.modules, packages):
        yield lambda file, name, **settings: getattr(import_module(f"lm_polygraph.estimators.{file}"), name)(**settings)


@dataclass
class Text:
    """n tokens that a model wrote after a prompt of p: what they were drawn from, and what every layer attended to."""

    ids: np.ndarray  # (n,) int
    log_p: np.ndarray  # (n, V) float64
    maps: np.ndarray  # (L, h, p + n, p + n) float64, each row's weights

    @property
    def logprob(self) -> np.ndarray:
        return self.log_p[np.arange(len(self.ids)), self.ids]  # (n,)

    def stats(self, *, shift: int = 0) -> dict[str, Any]:
        """What their calculators give (``greedy_probs.py``, ``attention_forward_pass.py``).

        Row j of ``attention_all`` is of the pass that predicts token j, so it is what token j - 1 pays to the tokens up
        to itself; with ``shift`` 1 it is what token j pays.
        """
        n, p = len(self.ids), self.maps.shape[-1] - len(self.ids)
        maps = self.maps.reshape(-1, p + n, p + n)  # (L h, p + n, p + n)
        among = np.zeros((len(maps), n, n))
        for j in range(1, n):
            among[:, j, :j] = maps[:, p + j - 1 + shift, p : p + j]
        return {
            "greedy_tokens": [self.ids.tolist()],
            "greedy_log_probs": [self.log_p],
            "greedy_log_likelihoods": [self.logprob.tolist()],
            "attention_all": [among],
            "forwardpass_attention_weights": [self.maps],
        }


def draft_of(text: Text, most: int | None = None) -> Draft:
    """The same text, or its first tokens, as our capture gives it: measures in single, rows in half precision."""
    prompt, n = make_prompt(), len(text.ids)
    written = make_continuation(prompt, " a" * n, attention=False)
    p = text.maps.shape[-1] - n
    written.prompt_ids = written.prompt_ids[:p]
    written.ids, written.logprob = text.ids, text.logprob
    written.measures = {need: measure_rows(need, text.log_p).astype(np.float32) for need in MEASURES}
    written.layers = {layer: rows[:, p - 1 :].astype(np.float16) for layer, rows in enumerate(text.maps)}
    written.layer_count = len(text.maps)
    return Draft(written.beginning(n if most is None else most), load_pipeline())


def make_text(n: int, *, layers: int = LAYERS, p: int = 4, sharp: float = 3.0, seed: int = 0) -> Text:
    """Random, with weights that half precision holds exactly, so that both read the same arrays."""
    rng = np.random.default_rng(seed)
    logits = sharp * rng.normal(size=(n, VOCABULARY))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    maps = np.tril(rng.random((layers, HEADS, p + n, p + n)) + 0.01)
    maps = (maps / maps.sum(-1, keepdims=True)).astype(np.float16).astype(np.float64)
    return Text(rng.integers(0, VOCABULARY, n), log_p, maps)


def score(written: str, draft: Draft) -> float:
    """What a sentence scores; of a trigger that judges words, the mean over them, which is theirs of a text."""
    trigger = TRIGGERS.make(written)
    return trigger.score_unit(draft) if trigger.unit == "sentence" else float(trigger.check_score(draft).mean())


@pytest.mark.parametrize("sharp", [0.0, 0.5, 8.0])
@pytest.mark.parametrize("n", [1, 12])
def test_estimators_of_the_whole_distribution(polygraph: Callable[..., Estimator], n: int, sharp: float) -> None:
    """Rényi's is minus the entropy minus log V, Fisher-Rao's the distance that ours is 1 minus.

    Measures are stored in single precision; arccos near a uniform distribution has only half of its digits.
    """
    text = make_text(n, sharp=sharp)
    draft, stats = draft_of(text), text.stats()
    (renyi,) = polygraph("renyi_neg", "RenyiNeg")(stats)
    (renyi_2,) = polygraph("renyi_neg", "RenyiNeg", alpha=2, temperature=1)(stats)
    (distance,) = polygraph("fisher_rao", "FisherRao")(stats)
    (certainty,) = polygraph("self_certainty", "SelfCertainty")(stats)
    assert score("renyi", draft) == pytest.approx(-renyi - np.log(VOCABULARY), rel=1e-6)
    assert score("renyi-2", draft) == pytest.approx(-renyi_2 - np.log(VOCABULARY), rel=1e-6)
    assert score("fisher-rao", draft) == pytest.approx(1 - distance, abs=1e-6)
    assert score("self-certainty", draft) == pytest.approx(certainty, rel=1e-6, abs=1e-6)


def test_estimators_of_the_probability(polygraph: Callable[..., Estimator]) -> None:
    text = make_text(9)
    (improbable,) = polygraph("max_probability", "MaximumSequenceProbability")(text.stats())
    (perplexity,) = polygraph("perplexity", "Perplexity")(text.stats())
    assert score("max-probability", draft_of(text)) == pytest.approx(improbable, rel=1e-12)
    assert score("perplexity", draft_of(text)) == pytest.approx(perplexity, rel=1e-12)


@pytest.mark.parametrize("layers", [3, 4, 7, 12])
@pytest.mark.parametrize("n", [2, 3, 15])
def test_rauq(polygraph: Callable[..., Estimator], n: int, layers: int) -> None:
    for seed in range(3):
        text = make_text(n, layers=layers, seed=seed)
        draft = draft_of(text)
        for alpha in (0.2, 0.5, 1.0):
            theirs = polygraph("rauq", "RAUQ", alpha=alpha, n_layers=layers, n_heads=HEADS)
            for attends_to, shift in (("itself", 0), ("previous", 1)):
                (expected,) = theirs(text.stats(shift=shift))
                ours = score(f"rauq(alpha={alpha}, attends_to={attends_to!r})", draft)
                assert ours == pytest.approx(expected, rel=1e-12)
    assert polygraph("rauq", "RAUQ").alpha == TRIGGERS.make("rauq").alpha  # type: ignore[attr-defined]
    assert tuple(theirs.layers) == resolve_layers("attention:middle-third", layers)  # type: ignore[attr-defined]


def test_rauq_of_one_token_is_its_probability() -> None:
    text = make_text(1)
    assert score("rauq", draft_of(text)) == pytest.approx(1 - text.logprob[0])


def test_the_attention_score_counts_every_token_where_theirs_leaves_out_the_last(
    polygraph: Callable[..., Estimator],
) -> None:
    text = make_text(11)
    theirs = polygraph("attention_score", "AttentionScore", layer=LAYERS // 2, gen_only=True)
    (expected,) = theirs(text.stats())
    assert score("attention-score", draft_of(text, 10)) == pytest.approx(expected)
    assert score("attention-score", draft_of(text)) > expected


def test_a_weight_of_zero_counts_as_theirs(polygraph: Callable[..., Estimator]) -> None:
    text = make_text(6)
    text.maps[:] = np.where(np.eye(text.maps.shape[-1], dtype=bool), 0.0, text.maps)
    theirs = polygraph("attention_score", "AttentionScore", layer=LAYERS // 2, gen_only=True)
    (expected,) = theirs(text.stats())
    assert score("attention-score", draft_of(text, 5)) == pytest.approx(expected)
    (expected,) = polygraph("rauq", "RAUQ", n_layers=LAYERS, n_heads=HEADS)(text.stats())
    assert score("rauq", draft_of(text)) == pytest.approx(expected)


def test_what_the_embedded_model_writes_scores_as_its_own_arrays_do(polygraph: Callable[..., Estimator]) -> None:
    """From our capture of a draft, and from one eager pass of transformers over it, arranged as theirs.

    Rows are kept in half precision, so each weight is off by up to 5e-4 of itself, and its logarithm by as much.
    """
    lm = LanguageModel.load()
    prompt = default_template(lm, method()).render(demo_questions()[0].text)
    layers = ("attention:middle", "attention:middle-third")
    written = lm.generate(Write(prompt, 25, measures=MEASURES, layers=layers))
    p, n = len(written.prompt_ids), len(written)
    model = AutoModelForCausalLM.from_pretrained(
        embedded_model_path(), attn_implementation="eager", dtype=torch.float32
    )
    with torch.inference_mode():
        output = model(torch.tensor([[*written.prompt_ids, *written.ids]]), output_attentions=True)
    log_p = torch.log_softmax(output.logits[0, p - 1 : p + n - 1].double(), -1).numpy()
    text = Text(written.ids, log_p, torch.cat(output.attentions).double().numpy())
    sizes = {"n_layers": text.maps.shape[0], "n_heads": text.maps.shape[1]}
    draft, stats = Draft(written, load_pipeline()), text.stats()
    expected = {
        "renyi": -polygraph("renyi_neg", "RenyiNeg")(stats) - np.log(log_p.shape[1]),
        "fisher-rao": 1 - polygraph("fisher_rao", "FisherRao")(stats),
        "self-certainty": polygraph("self_certainty", "SelfCertainty")(stats),
        "max-probability": polygraph("max_probability", "MaximumSequenceProbability")(stats),
        "perplexity": polygraph("perplexity", "Perplexity")(stats),
        "rauq": polygraph("rauq", "RAUQ", **sizes)(stats),
        "rauq(attends_to='previous')": polygraph("rauq", "RAUQ", **sizes)(text.stats(shift=1)),
    }
    for name, (theirs,) in expected.items():
        assert score(name, draft) == pytest.approx(theirs, rel=1e-3), name
    beginning = Draft(written.beginning(n - 1), load_pipeline())
    (theirs,) = polygraph("attention_score", "AttentionScore", layer=sizes["n_layers"] // 2, gen_only=True)(stats)
    assert score("attention-score", beginning) == pytest.approx(theirs, rel=1e-3)
