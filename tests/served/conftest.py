"""Model servers on this machine, and labs that ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from model_server import ModelServer, serve

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
