"""Session ids, and the file key that stands for an id (or a name) on disk."""

from __future__ import annotations

import re
from os import urandom

from hansard.errors import InvalidId

PREFIX = "sess_"
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_SAFE = re.compile(r"[a-z0-9_-](?:[a-z0-9_.-]{0,118}[a-z0-9_-])?", re.ASCII)
_LONGEST_KEY = 180
_HASHED = re.compile(r"[a-z0-9_.=-]{100}=~[0-9a-f]{64}", re.ASCII)


def new_id() -> str:
    """A fresh id: `sess_` and 16 characters of Crockford base 32, 80 random bits.

    >>> len(new_id())
    21
    """
    return _spelled(urandom(10))


def child_id(uid: str, path: str) -> str:
    """The id of the child that a session has at a path: the same for whoever asks.

    >>> child_id("5eed5eed5eed5eed", "research")
    'sess_rant362pv1nccq74'
    """
    import hashlib  # only sub-sessions need it

    return _spelled(hashlib.sha256(f"{uid}/{path}".encode()).digest()[:10])


def _spelled(bits: bytes) -> str:
    number = int.from_bytes(bits)
    return PREFIX + "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(75, -5, -5))


def check_id(id: object) -> str:
    """The id itself, or `InvalidId`: 1 to 512 characters of valid Unicode without control characters.

    >>> check_id("telegram:4711/übung")
    'telegram:4711/übung'
    """
    if not isinstance(id, str):
        raise InvalidId(id, f"it is {type(id).__name__}, not text")
    if id.isascii() and id.isprintable():  # the usual case, at C speed
        if not id.strip():
            raise InvalidId(id, "it is blank")
    else:
        if not id.strip():
            raise InvalidId(id, "it is blank")
        import unicodedata  # ids beyond ASCII are rare

        for character in id:
            category = unicodedata.category(character)
            if category == "Cc":
                raise InvalidId(id, f"it has a control character, U+{ord(character):04X}")
            if category == "Cs":
                raise InvalidId(id, "it is not valid Unicode (a lone surrogate)")
    if len(id) > 512:
        raise InvalidId(id, f"it has {len(id)} characters; 512 are allowed")
    return id if type(id) is str else str.__str__(id)


def file_key(id: str) -> str:
    """A file name for an id: the id where that is a safe name, else a reversible escape of it.

    Two ids never share one, on file systems that fold case or normalise Unicode too. Escapes are `=`
    and two hex digits for each byte; a key that would be too long ends in `=~` and a hash.

    >>> file_key("sess_0123456789abcdef"), file_key("a/B")
    ('sess_0123456789abcdef', 'a=2f=42')
    """
    if _SAFE.fullmatch(id):
        return id
    last = len(id) - 1
    key = "".join(
        c
        if c.isascii() and (c.islower() or c.isdigit() or c in "_-" or (c == "." and 0 < i < last))
        else "".join(f"={byte:02x}" for byte in c.encode())
        for i, c in enumerate(id)
    )
    if len(key) > _LONGEST_KEY:
        import hashlib

        key = f"{key[:100]}=~{hashlib.sha256(id.encode()).hexdigest()}"
    return key


def id_of(key: str) -> str | None:
    """The id behind a file key, or None where the key is hashed or is not one of ours.

    >>> id_of("a=2f=42")
    'a/B'
    """
    if "=~" in key:
        return None
    try:
        id = re.sub(rb"=([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), key.encode("ascii")).decode()
    except UnicodeError:
        return None
    return id if id and file_key(id) == key else None


def is_hashed(key: str) -> bool:
    """Whether a file key ends in a hash, so that it does not say what id it stands for."""
    return _HASHED.fullmatch(key) is not None
