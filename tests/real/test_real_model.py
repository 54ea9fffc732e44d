"""SmolLM2-135M-Instruct: loaded from GGUF, it checks itself, and what is captured is its own
eager attention.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from open_questions import QUESTIONS
from transformers import AutoModelForCausalLM, AutoTokenizer

from dragin_lab.core.episode import Write
from dragin_lab.engines import sources as conversion
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Prompt

pytestmark = pytest.mark.real

#: The captured rows are kept in float16, whose spacing below 1 is 2^-11; half of it is lost to
#: rounding, and as much is left for float32 sums in another order.
ROWS = 2**-11
#: Thirty layers add up in another order with and without a cache; a thousandth of a nat decides
#: nothing.
LOGITS = 1e-3


def test_it_loads_from_the_file_and_from_its_folder(
    smollm2: LanguageModel, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "_read_model", None)  # what was converted is kept
    again = LanguageModel.load(gguf.parent, check=False)
    assert again.name == smollm2.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert smollm2.provenance()["weights_sha256"].startswith("b179c9523d0e6a0f")  # that of the file
    assert [str(check) for check in smollm2.check() if not check.passed] == []
    assert smollm2.model.dtype == torch.float32
    assert smollm2.tokenizer.marker == "Ġ"
    assert smollm2.tokenizer.chats
    assert {smollm2.tokenizer.hf.decode([i]) for i in smollm2.eos} == {"<|im_end|>"}


@pytest.mark.slow
def test_what_is_kept_is_what_transformers_converts(smollm2: LanguageModel, gguf: Path) -> None:
    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    for text in (*QUESTIONS, "<|im_start|>user\nHi<|im_end|>\n", " naïve 電影 \t\n\n x"):
        assert smollm2.tokenizer.hf(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert smollm2.tokenizer.hf.chat_template == tokenizer.chat_template
    theirs = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).state_dict()
    ours = smollm2.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_what_is_captured_is_its_own_eager_attention(smollm2: LanguageModel) -> None:
    written = smollm2.write(Write(Prompt(f"Question: {QUESTIONS[0]}\nAnswer:"), 40, attention=True))
    ids = torch.tensor([[*written.prompt_ids.tolist(), *written.ids.tolist()]])
    p = len(written.prompt_ids)
    eager = AutoModelForCausalLM.from_pretrained(
        smollm2.model.name_or_path, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        out = eager(ids, output_attentions=True)
        own = eager.generate(ids[:, :p], max_new_tokens=40, do_sample=False)
    assert own[0, p:].tolist() == written.ids.tolist()
    assert written.rows is not None
    np.testing.assert_allclose(written.rows, out.attentions[-1][0, :, p - 1 :], atol=ROWS)
    logs = out.logits[0, p - 1 : -1].log_softmax(-1)
    np.testing.assert_allclose(written.entropy, torch.special.entr(logs.exp()).sum(-1), atol=LOGITS)
