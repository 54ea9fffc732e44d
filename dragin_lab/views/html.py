"""Writing HTML by hand, safely: escaping, numbers as people read them, visible cuts, one page around a view."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from functools import cache
from html import escape
from importlib import resources

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def printable(text: str) -> str:
    """Text without control characters (shown as their pictures: ␛) or lone surrogates (shown as �)."""
    return _UNSAFE.sub(_picture, text)


def esc(text: object) -> str:
    """Any value as HTML text or attribute value: escaped, printable."""
    return escape(printable(str(text)), quote=True)


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


def count(n: int, one: str, many: str = "") -> str:
    """``3 passages``, ``1 passage``, ``1,204 passages``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def clip(text: str, limit: int, unit: str = "character") -> tuple[str, str]:
    """The text up to ``limit`` characters, and what to say about the rest ("" when nothing is left out)."""
    if len(text) <= limit:
        return text, ""
    return text[:limit], f"… {count(len(text) - limit, 'more ' + unit)}"


def clipped(text: str, limit: int) -> str:
    """``clip`` as HTML: the escaped text and a visible mark where it was cut."""
    head, rest = clip(text, limit)
    return esc(head) + (f'<span class="more">{rest}</span>' if rest else "")


def row(part: str, title: str, says: str, inner: str) -> str:
    """One part of a view: its title and what it is about at the left, ``inner`` (HTML) beside it."""
    about = f" <small>{esc(says)}</small>" if says else ""
    return f'<section class="row" data-part="{part}"><h4>{esc(title)}{about}</h4><div>{inner}</div></section>'


def soft(text: str) -> str:
    """A remark in small letters."""
    return f'<p class="soft">{esc(text)}</p>'


def tag(text: str, css: str = "") -> str:
    """A small label within a text; a ``bdi``, so that the text around it alone tells its direction."""
    return f'<bdi class="tag{" " + css if css else ""}">{esc(text)}</bdi>'


def attempt(what: str, render: Callable[[], str], fallback: Callable[[], str]) -> str:
    """What ``render`` makes; where it fails, the visible error, the HTML of ``fallback``, and a warning.

    A picture that cannot be drawn must not take a notebook cell down, whatever went wrong in it; nor may it hide that.
    """
    try:
        return render()
    except Exception as error:  # noqa: BLE001 - any failure of a view degrades to text, see above
        said = f"{what} could not be shown: {type(error).__name__}: {error}"
        warnings.warn(said, RuntimeWarning, stacklevel=2)
        return f'<p class="alert" role="alert">{esc(said)}</p><div class="plain">{fallback()}</div>'


@cache
def stylesheet(*more: str) -> str:
    """The views' CSS, as small as it is sent: without comments and needless white space.

    ``more`` names sheets beside ``style.css``, such as "strip".
    """
    from dragin_lab.views.heat import ramp_css

    folder = resources.files("dragin_lab.views")
    css = "".join(folder.joinpath(f"{name}.css").read_text(encoding="utf-8") for name in ("style", *more))
    css = css.replace("/*ramp*/", ramp_css())
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = re.sub(r"\s+", " ", css)
    return re.sub(r" ?([{};,>]) ?", r"\1", css).strip()


def page(title: str, body: str) -> str:
    """One complete document around a view, to be opened from a file."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{esc(title)}</title><style>body{{margin:0;padding:clamp(8px,2vw,28px);"
        "background:light-dark(#f4f3f1,#0d0e11)}.dl-out{margin:auto;max-width:1180px}"
        ".dl-out+.dl-out{margin-top:22px}</style></head>"
        f"<body>{body}</body></html>\n"
    )
