"""Java properties text, and the checksum that Hudi keeps in ``hoodie.properties``.

Hudi writes its table properties and partition metadata with ``java.util.Properties``: ISO-8859-1
text, one ``key=value`` a line.  A person may have edited the file, so everything that Java reads is
read: ``=``, ``:`` or blanks between key and value, lines continued with a backslash, escapes.
Order means nothing.  Files of this kind are small; a large one is not one of ours.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from sparkrobust.errors import CorruptTableError, InternalError

TABLE_NAME = "hoodie.table.name"
DATABASE_NAME = "hoodie.database.name"
TABLE_CHECKSUM = "hoodie.table.checksum"

MAX_BYTES = 16 << 20

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPELLING = {char: f"\\{letter}" for letter, char in _MEANING.items()}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse(data: bytes, *, path: str) -> dict[str, str]:
    """Read properties as Java does.

    Parameters
    ----------
    data
        The whole file.
    path
        What to call the file in an error.

    Raises
    ------
    CorruptTableError
        A ``\\u`` escape is broken, or the file holds a NUL, which neither Java nor Hudi writes:
        it is what a torn file has in place of its text.
    """
    if len(data) > MAX_BYTES:
        raise CorruptTableError(
            f"{path}: {len(data)} bytes, expected properties of at most {MAX_BYTES} bytes", path=path
        )
    nul = data.find(0)
    if nul >= 0:
        raise CorruptTableError(f"{path}: a NUL at byte {nul}, expected properties text", path=path)
    values: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None  # the pattern matches the empty string
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        values[_unescaped(key.group(), path)] = _unescaped(line[separator.end() :], path)
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations joined; without comments and blank lines."""
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()
    logical, continued = "", False
    for natural in lines:
        line = natural.lstrip(_BLANKS)
        if not logical and line[:1] in ("", "#", "!"):
            continued = False
            continue
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        logical += line[:-1] if continued else line
        if not continued:
            yield logical
            logical = ""
    if continued:
        yield logical


def _unescaped(text: str, path: str) -> str:
    if "\\" not in text:
        return text

    def meaning(escape: re.Match[str]) -> str:
        char = escape.group(1)
        if char == "u":
            raise CorruptTableError(
                f"{path}: {text[escape.start() : escape.start() + 6]!r}, "
                "expected four hexadecimal digits after \\u",
                path=path,
            )
        return chr(int(char[1:], 16)) if len(char) == 5 else _MEANING.get(char, char)

    plain = _ESCAPE.sub(meaning, text)
    if not _SURROGATE.search(plain):
        return plain
    try:  # Java writes a character beyond U+FFFF as two escapes
        return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise CorruptTableError(
            f"{path}: half of a surrogate pair in {text[:40]!r}, expected both", path=path
        ) from None


def render(values: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """Write properties as Java does, in the order given.

    Parameters
    ----------
    values
        What to write.
    comments
        Lines for the top; a line break in one starts another comment line.
    """
    lines = [f"#{line}" for comment in comments for line in _LINE_END.split(comment.replace("\0", "\\u0000"))]
    lines += [f"{_escaped(key, key=True)}={_escaped(value, key=False)}" for key, value in values.items()]
    text = "".join(f"{line}\n" for line in lines)
    return b"".join(_in_latin_1(char) for char in text) if not text.isascii() else text.encode("ascii")


def _in_latin_1(char: str) -> bytes:
    """Only comments can still hold characters beyond ASCII; Java keeps those that the charset has."""
    return char.encode("latin-1") if char <= "\xff" else _unicode_escape(char).encode("ascii")


def _escaped(text: str, *, key: bool) -> str:
    pieces = []
    for position, char in enumerate(text):
        if char in "\\=:#!" or (char == " " and (key or position == 0)):
            pieces.append(f"\\{char}")
        elif char in _SPELLING:
            pieces.append(_SPELLING[char])
        elif " " <= char <= "~":
            pieces.append(char)
        else:
            pieces.append(_unicode_escape(char))
    return "".join(pieces)


def _unicode_escape(char: str) -> str:
    try:
        units = char.encode("utf-16-be")
    except UnicodeEncodeError:
        raise InternalError(f"half of a surrogate pair in properties: {char!r}") from None
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def comment_date(moment: datetime) -> str:
    """The date as Java puts it under the first comment, in English whatever the locale."""
    zone = moment.tzname() or "UTC"
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day} {month} {moment.day:02d} {moment:%H:%M:%S} {zone} {moment.year}"


def table_checksum(values: Mapping[str, str]) -> int:
    """Hudi's checksum of a table's properties: it covers the names of database and table, no more."""
    name = values.get(TABLE_NAME)
    if name is None:
        raise InternalError(f"no checksum of properties without {TABLE_NAME}")
    return zlib.crc32(f"{values.get(DATABASE_NAME, '')}.{name}".encode())


def verify_checksum(values: Mapping[str, str], path: str) -> None:
    """Refuse properties whose checksum is there and wrong; Hudi accepts a missing one, and so do we."""
    written = values.get(TABLE_CHECKSUM)
    if written is None:
        return
    if TABLE_NAME not in values:
        raise CorruptTableError(
            f"{path}: {TABLE_NAME} is missing, expected it beside the checksum", path=path
        )
    expected = table_checksum(values)
    if written != str(expected):
        raise CorruptTableError(
            f"{path}: {TABLE_CHECKSUM} is {written!r}, expected {expected} for this table's name",
            path=path,
            hint="the file was edited or torn; hoodie.properties.backup may hold the right one",
        )
