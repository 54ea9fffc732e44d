"""What a model's name stands for: a folder, a GGUF file or an id of the Hub. Wrong ones are
refused without torch.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants

from dragin_lab.checks import is_embedded
from dragin_lab.errors import ModelError
from dragin_lab.files import as_path

Source = str | os.PathLike[str]  # a folder, a file, or an id of the Hub
_MAGIC = b"GGUF"
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


def check_name(source: Any) -> None:
    """Raise ``ModelError`` for a model, or the tokenizer of one, of which nothing can be here or
    on the Hub.
    """
    if (
        is_embedded(source)
        or str(source).startswith(("http://", "https://"))
        or find_gguf(source) is not None
    ):
        return
    name, folder = find_source(source)
    if folder is None:
        refuse_unreachable(name)
    else:
        refuse_adapter(name)


def find_source(source: Source) -> tuple[str, Path | None]:
    """A path or hub id, and the folder where it is one. Raises ``ModelError`` for a path of
    something else.
    """
    path = as_path(source, ModelError)
    name = str(source)
    if path.is_dir():
        return str(path), path
    if path.exists() or name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name:
        raise ModelError(
            f"no folder {name!r}; give the folder of a saved model, a GGUF file, or a Hugging"
            " Face id"
        )
    return name, None


def find_gguf(source: Source) -> Path | None:
    """The GGUF file that a path names, or the only one in a folder without ``config.json``; None
    for anything else.

    Raises ``ModelError`` for a ``.gguf`` file that is missing or is none, for one part of a split
    model, and for a folder with several.
    """
    path = as_path(source, ModelError)
    if path.is_dir():
        files = [] if (path / "config.json").is_file() else sorted(path.glob("*.gguf"))
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise ModelError(
                f"{path} holds {len(files)} GGUF files ({names}); give the path of one of them"
            )
        path = files[0] if files else path
    if path.suffix.lower() != ".gguf":
        return None
    if not path.is_file():
        raise ModelError(f"no file {str(source)!r}; give the path of a GGUF file")
    if _PART.search(path.name):
        raise ModelError(
            f"{path} is one part of a model; join its parts with llama-gguf-split --merge"
        )
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(
                f"{path} is not a GGUF file: it does not begin with GGUF; fetch it again"
            )
    return path


def refuse_adapter(name: str) -> None:
    """Raise ``ModelError`` for a folder with an adapter (peft), which holds no model."""
    if Path(name, "adapter_config.json").is_file():
        raise ModelError(
            f"{name} holds an adapter (peft), not a model; load both with peft, and give what"
            " merge_and_unload() returns, or the folder that it is saved in"
        )


def refuse_unreachable(name: str) -> None:
    """Raise ``ModelError`` for a Hub id that is not here while the Hub is not asked, or would be
    for long in vain.
    """
    folder = os.path.join(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    cached = os.path.isdir(folder)  # unlike Path's, it takes what nobody may look into as absent
    # else it can be no id
    if constants.HF_HUB_OFFLINE and not cached and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ModelError(
            f"{name!r} is no folder here and not in the local cache, and HF_HUB_OFFLINE forbids to"
            " ask for it; check the name, or fetch the model without that variable"
        )
    if constants.HF_HUB_OFFLINE or getproxies():
        return
    if cached:
        # takes longer to import than all that is looked at here
        from huggingface_hub import try_to_load_from_cache

        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
    address = urlsplit(constants.ENDPOINT)
    answered = threading.Event()

    def knock() -> None:
        with suppress(OSError):
            socket.create_connection(
                (address.hostname or "", address.port or 443), timeout=3.0
            ).close()
            answered.set()

    knocking = threading.Thread(target=knock, daemon=True)  # looking a name up knows no timeout
    knocking.start()
    knocking.join(3.0)
    if not answered.is_set():
        raise ModelError(
            f"{name!r} is no folder here and not in the local cache, and {address.hostname} does"
            " not answer; check the name, or fetch the model where there is a network"
        )
