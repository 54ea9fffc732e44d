"""Every trigger that came after DRAGIN, in the order in which lists show them; importing this enters them by name."""

from __future__ import annotations

from dragin_lab.core import triggers
from dragin_lab.triggers import call, corpus, entities, etc, plain, prefix, probe, search_risk

BUILT_IN = (triggers, call, etc, plain, prefix, entities, probe, corpus, search_risk)
