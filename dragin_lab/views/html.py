"""Text that is safe to show: printable and escaped, readable numbers, visible cuts."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from dragin_lab.text import printable


def esc(text: object) -> Markup:
    """Any value as HTML text or attribute value: escaped, printable."""
    return escape(printable(text))


def num(value: float, digits: int = 3) -> str:
    """A measured number: three decimals below 10, fewer above; NaN, which means not measured, is a dash."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    return f"{value:.{digits if size < 10 else max(digits - 2, 1) if size < 1000 else 0}f}".replace("-", "−")


def short(value: float) -> str:
    """A setting or a scale's number, without trailing zeros."""
    return f"{float(value):.3g}".replace("-", "−")


def percent(p: float) -> str:
    """A probability for people: 41 %, 0.3 %, under 0.1 %."""
    return f"{100 * p:.0f} %" if p >= 0.0995 else f"{100 * p:.1f} %" if p >= 0.0005 else "<0.1 %"


def count(n: int, one: str, many: str = "") -> str:
    """``3 passages``, ``1 passage``, ``1,204 passages``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def clip(text: str, limit: int, unit: str = "character") -> tuple[str, str]:
    """The text up to ``limit`` characters, and what to say about the rest ("" when nothing is left out)."""
    if len(text) <= limit:
        return text, ""
    return text[:limit], f"… {count(len(text) - limit, 'more ' + unit)}"


def clip_html(text: str, limit: int) -> Markup:
    """``clip`` as HTML: the escaped text and a visible mark where it was cut."""
    head, rest = clip(text, limit)
    return esc(head) + (Markup(f'<span class="more">{rest}</span>') if rest else "")
