"""Model servers on this machine, llama.cpp in this process, and labs that ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_gguf
from model_server import ModelServer, almanac, serve

import dragin_lab as dl

KINDS = ("llama.cpp", "vLLM")


@pytest.fixture
def started() -> Iterator[Callable[..., ModelServer]]:
    """Starts a model server: ``started("vLLM", key="…")``."""
    with ExitStack() as stack:
        yield lambda kind="llama.cpp", **options: stack.enter_context(serve(ModelServer(kind, **options)))


@pytest.fixture
def asking(started: Callable[..., ModelServer]) -> Iterator[Callable[..., tuple[dl.Lab, ModelServer]]]:
    """A lab that asks a new server, which waits a moment before it tries again; and the server."""
    labs = []

    def open_lab(kind: str = "llama.cpp", loading: dict[str, Any] | None = None, **options: Any) -> Any:
        server = started(kind, **options)
        lab = dl.Lab(server.address, tokenizer="almanac", **loading or {})
        lab.model.interface.server.pause = 0.01
        server.asked.clear()
        labs.append(lab)
        return lab, server

    yield open_lab
    for lab in labs:
        lab.close()


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Almanac's model as a float32 GGUF file."""
    pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("served") / "almanac.gguf"
    return write_gguf(path, almanac().model, almanac().tokenizer.hf.backend_tokenizer)


@pytest.fixture(scope="session")
def open_llama(file: Path) -> Callable[[], dl.Lab]:
    """Opens a lab of a llama.cpp of its own, in this process."""
    pytest.importorskip("xllamacpp")
    return lambda: dl.Lab(file, engine="llama.cpp", tokenizer="almanac", dtype="float32", threads=1, slots=2)


@pytest.fixture(scope="session")
def lab(open_llama: Callable[[], dl.Lab]) -> Iterator[dl.Lab]:
    with open_llama() as lab:
        yield lab
