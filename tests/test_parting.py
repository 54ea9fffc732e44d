"""Where two traces part, and by how little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from factories import make_continuation

from dragin_lab.parting import parting
from dragin_lab.trace import Question, Step, Trace
