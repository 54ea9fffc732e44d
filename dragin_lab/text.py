"""Text from users, files, servers and models before it is shown or handed on.

Without control characters, with nothing that a page takes for markup or a spreadsheet for a
formula.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

#: Control characters, half characters, and what reverses the order in which a terminal or a page
#: shows the rest.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
#: What stands before the credentials in an address: the kind of a retriever or corpus, and the
#: scheme of a URL.
_BEFORE_CREDENTIALS = re.compile(
    r"(?:(?:elasticsearch|dense|hub):)?(?:(?:[a-z][a-z0-9+.-]*:)?//)?", re.IGNORECASE
)

_NUMBER = re.compile(r"\d*\.?\d+")


def printable(text: object) -> str:
    """Text in which control characters are pictures (␛), and half characters and overrides of the
    direction are �.

    It has as many characters as before. Line ends and tabs stay.
    """
    return _UNSAFE.sub(lambda match: _PICTURES.get(match[0], "\ufffd"), str(text))


def compose(text: str) -> str:
    """Text in Unicode's composed form (NFC), in which canonically equivalent texts are equal
    (UAX 15).
    """
    return unicodedata.normalize("NFC", text)


#: What carries no text (Unicode's Default_Ignorable_Code_Point): soft hyphens, joiners, marks of
#: direction, BOMs.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Text without the characters that carry none."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def fold_letters(text: str) -> str:
    """Text as index and metric compare it: composed and without forms of width and compatibility
    (NFKC: １９９０ is 1990, ﬁlm is film), visible, with i for İ, as Lucene writes its small form.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", visible(text)).replace("\u0130", "i")


def split_credentials(address: str) -> tuple[str, str]:
    """The credentials in an address ("user:password", or ""), and the address without them.

    They end at the last "@", so a password may hold any character but white space. Without a
    scheme, only "user:password@host" has credentials: a path, a Hub id that holds "@" or
    "smollm:rind@0.5" is left as it is.
    """
    before, at, after = address.rpartition("@")
    kept = _BEFORE_CREDENTIALS.match(before).group()  # type: ignore[union-attr]  # it matches an empty text too
    credentials = before[len(kept) :]
    user, colon, _ = credentials.partition(":")
    is_path = not colon or "/" in user or user.startswith((".", "~"))
    is_name = not kept.endswith("//") and (is_path or _NUMBER.fullmatch(after))
    is_text = len(address.split()) > 1
    if not at or is_name or is_text:
        return "", address
    return credentials, kept + after


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """What is known of an object, as a notebook shows it; what is empty is left out."""
    start = 'style="text-align: start"'
    rows = ""
    for name, value in facts.items():
        if value not in (None, "", ()):
            shown = escape(printable(value))
            rows += f"<tr><th {start}>{escape(name)}</th><td {start}>{shown}</td></tr>"
    return f"<p><b>{escape(printable(title))}</b></p><table>{rows}</table>"


#: In a message: the credentials of an address, and the value of a secret in its query.
_CREDENTIALS = re.compile(r"(?<=//)[^\s/?#]+@")
_QUERY = re.compile(
    r"([?&](?:api[_-]?key|access[_-]?key|token|auth|password|secret|key|sig)=)[^&\s'\"#]+",
    re.IGNORECASE,
)


def hide_secrets(message: str) -> str:
    """A message, or an address, without the user, the password and the keys in the addresses
    that it names.
    """
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub("", message))


def write_compared(value: float, limit: float) -> tuple[str, str]:
    """A measured value and the limit that it is compared with, with as many digits as keep their
    order.

    Three digits of the value and six of the limit where these do: ("0.31", "0.25"), but ("0.2504",
    "0.25").
    """
    for digits in range(3, 18):
        texts = f"{value:.{digits}g}", f"{limit:.{max(digits, 6)}g}"
        shown, bound = map(float, texts)
        if (shown > bound, shown < bound) == (value > limit, value < limit):
            break
    return texts


def csv_text(frame: pd.DataFrame, *, index: bool = False) -> str:
    """A DataFrame as CSV in which no text is a formula: one that begins with = + - @ gets an
    apostrophe before it.

    Numbers stay numbers, those in a text too.
    """
    plain = frame.map(_no_formula).rename(columns=_no_formula, index=_no_formula)
    return str(plain.to_csv(index=index, lineterminator="\n"))


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
