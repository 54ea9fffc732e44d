"""Write ``dragin_lab/__init__.pyi``, the public names for type checkers and editors, from the list
in ``__init__.py``.

python -m tools.stub
"""

from __future__ import annotations

import dragin_lab
from tools.base import ROOT

STUB = ROOT / "dragin_lab" / "__init__.pyi"


def write_stub() -> str:
    """Every public name, imported from where it lives, as ``name as name``: the form that
    re-exports in a stub.
    """
    lines = [f"from dragin_lab import {room} as {room}" for room in dragin_lab._ROOMS]
    for module, names in dragin_lab._NAMES.items():
        lines += [
            f"from dragin_lab.{module} import {name} as {name}" for name in sorted(names.split())
        ]
    return "\n".join([*sorted(lines), "", "__version__: str", ""])


if __name__ == "__main__":
    STUB.write_text(write_stub(), encoding="utf-8")
