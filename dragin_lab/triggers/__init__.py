"""Every trigger that came after DRAGIN; importing this enters them by name."""

from dragin_lab.core import paper_triggers
from dragin_lab.triggers import call, entities, etc, plain, prefix

__all__ = ["call", "entities", "etc", "paper_triggers", "plain", "prefix"]
