"""Every trigger that came after DRAGIN, in the order in which lists show them; importing this enters them by name."""

from __future__ import annotations

from dragin_lab.core import clock
from dragin_lab.triggers import call, entities, etc, max_probability, plain, prefix

BUILT_IN = (clock, call, etc, plain, prefix, entities, max_probability)
