"""Live controls for a notebook, by ipywidgets: tune a threshold, look into a trace and branch it,
ask, browse runs.

Each is a box around the figures and pages of ``views``, which say the same without a kernel.
"""

from __future__ import annotations

from importlib.util import find_spec

from dragin_lab.errors import MissingPackageError

if find_spec("ipywidgets") is None:
    raise MissingPackageError(
        "live controls need ipywidgets, which is not installed; run pip install"
        " 'dragin-lab[notebooks]', or use the figures and pages of dragin_lab.views, which need"
        " none"
    )
