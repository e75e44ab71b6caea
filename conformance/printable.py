"""Names that others chose (sessions, requests, files) made safe for a format, each still told apart from every other."""

from __future__ import annotations

import re
from typing import Any

_NOT_IN_UTF8 = re.compile("[\ud800-\udfff]")
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNSEEN = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Control characters, and those that turn the direction in which a text is read."""

_UNSEEN_ON_TERMINAL = re.compile(f"[\n\ud800-\udfff]|{_UNSEEN.pattern}")
_PICTURES, _DELETE, _ANY_OTHER = 0x2400, 0x7F, "\N{REPLACEMENT CHARACTER}"


def for_json(value: Any) -> Any:
    """A value without halves of characters, which a file name may hold and strict readers refuse."""
    if isinstance(value, str):
        return _NOT_IN_UTF8.sub(_escaped, value)
    if isinstance(value, dict):
        return {for_json(str(name)): for_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(one) for one in value]
    return value


def for_xml(text: str) -> str:
    """What XML 1.0 cannot hold, not even escaped, is written as Python would."""
    return _NOT_IN_XML.sub(_escaped, text)


def for_reading(text: str) -> str:
    """One line of text that a terminal and a browser show as it is."""
    return _UNSEEN.sub(_escaped, for_json(text)).replace("\n", " ")


def for_terminal(text: str) -> str:
    """As many characters, none of which a terminal obeys: an escape sequence in a name is shown, not executed."""
    return _UNSEEN_ON_TERMINAL.sub(_pictured, text)


def for_markdown(text: str) -> str:
    """One cell of a table: no markup, no mention, no end of the cell or of its row."""
    line = re.sub(r"([\\`*_{}\[\]()#+!|~^$])", r"\\\1", for_reading(text))
    return (
        line.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("@", "&#64;")
        .replace("://", ":&#47;/")
    )


def _pictured(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == _DELETE:
        return "\N{SYMBOL FOR DELETE}"
    return chr(_PICTURES + code) if code < ord(" ") else _ANY_OTHER


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
