"""Every trigger that came after DRAGIN; importing this enters them by name."""

from dragin_lab.core import clock, dragin, flare
from dragin_lab.triggers import call, entities, etc, plain, prefix

__all__ = ["call", "clock", "dragin", "entities", "etc", "flare", "plain", "prefix"]
