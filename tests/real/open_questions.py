"""Eight real questions of HotpotQA and 2WikiMultihopQA, with exemplars and passages
(../parity/real/README.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SET: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "parity" / "real" / "sets.json").read_text(encoding="utf-8")
)["smol"]
QUESTIONS: list[str] = SET["questions"]["open"]
