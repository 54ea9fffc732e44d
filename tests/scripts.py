"""Load a script that is not part of a package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def loaded(path: str) -> Any:
    """A script of the repository as a module."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
