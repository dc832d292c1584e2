"""Signing keys, and what they prove: that an artefact's manifest is the one that a holder of the key has signed.

The manifest lists every file with its SHA-256, so a signature of its bytes is one of the whole artefact; what it names
by checksum (files, artefacts inside it, the store of a model) needs none of its own. It is an HMAC-SHA256: the same key
signs and verifies, so whoever can verify could sign.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.bounded import parse_json
from penstock.core.errors import ArtefactError, OutputExistsError, ParameterError
from penstock.core.params import STR, Constraint, Int, Satisfies
from penstock.core.plain_files import open_plain
from penstock.core.saved_folder import MANIFEST
from penstock.core.staging import replacing

SIGNATURE = "signature.json"
ALGORITHM = "hmac-sha256"
_KEY_FILE = re.compile(rf"penstock {ALGORITHM} ([0-9a-f]{{64}})\s*")
_PURPOSE, _NAMING = b"penstock artefact signature 1\0", b"penstock key name 1\0"
_MOST_BYTES = 4096  # of a key's file, and of a signature's
_FIELDS: dict[str, Constraint] = {
    "penstock": Satisfies(lambda value: value == "signature", "'signature'"),
    "version": Int(1, 1),
    "algorithm": Satisfies(lambda value: value == ALGORITHM, repr(ALGORITHM)),
    "key": STR,
    "signature": Satisfies(lambda text: isinstance(text, str) and text.isascii(), "a signature in hex"),
}


@dataclass(frozen=True)
class SigningKey:
    """A secret of 32 bytes; `name` tells it from others and gives nothing of it away.

    >>> key = SigningKey(bytes(32))
    >>> key.name, key.sign(b"{}")[:8], SigningKey(bytes([1] * 32)).sign(b"{}")[:8]
    ('04c0444852499171', 'c3689254', 'eb684fd8')
    """

    secret: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Sixteen hexadecimal digits."""
        return hashlib.sha256(_NAMING + self.secret).hexdigest()[:16]

    def sign(self, manifest: bytes) -> str:
        """The signature of a manifest's bytes, in hex.

        Args:
            manifest: all of them.

        Returns:
            64 hexadecimal digits.
        """
        return hmac.new(self.secret, _PURPOSE + manifest, hashlib.sha256).hexdigest()


KeyLike = SigningKey | str | Path
_verifying: ContextVar[SigningKey | None] = ContextVar("the key that verifies what is read", default=None)
_vouched: ContextVar[frozenset[str]] = ContextVar("manifests that a verified one names", default=frozenset())


def new_key(path: str | Path) -> SigningKey:
    """Make a key and write it to a file that only its owner can read.

    Args:
        path: of the file.

    Returns:
        The key.

    Raises:
        OutputExistsError: there is something at the path: a key that is replaced is lost.
    """
    key = SigningKey(secrets.token_bytes(32))
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OutputExistsError(f"{path} exists already; a key that is replaced is lost, choose another path") from None
    with os.fdopen(file, "w") as written:
        written.write(f"penstock {ALGORITHM} {key.secret.hex()}\n")
        written.flush()
        os.fsync(written.fileno())
    return key


def read_key(key: KeyLike) -> SigningKey:
    """The key in a file that `new_key` wrote.

    Args:
        key: the file's path; a key is given back as it is.

    Returns:
        The key.

    Raises:
        ParameterError: there is no key.
    """
    if isinstance(key, SigningKey):
        return key
    try:
        with open_plain(key) as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ParameterError(
            f"the key {key} cannot be read: {error.strerror}; penstock sign --new-key makes one"
        ) from error
    if not (found := _KEY_FILE.fullmatch(content.decode("ascii", "replace"))):
        raise ParameterError(f"{key} holds no signing key; penstock sign --new-key makes one")
    return SigningKey(bytes.fromhex(found[1]))


@contextmanager
def verifying(key: KeyLike | None) -> Iterator[None]:
    """Refuse, in the block, every artefact that this key has not signed.

    Args:
        key: the path of its file; None changes nothing.

    Raises:
        ParameterError: there is no key.

    Returns:
        A block.

    >>> with verifying(SigningKey(bytes(32))):
    ...     current_key().name
    '04c0444852499171'
    """
    token = _verifying.set(_verifying.get() if key is None else read_key(key))
    try:
        yield
    finally:
        _verifying.reset(token)


@contextmanager
def vouching(checksums: Iterable[str]) -> Iterator[None]:
    """What a verified artefact names by the SHA-256 of its manifest is verified with it."""
    token = _vouched.set(_vouched.get() | frozenset(checksums))
    try:
        yield
    finally:
        _vouched.reset(token)


def current_key() -> SigningKey | None:
    """The key of the innermost `verifying`, for those who go on reading in another thread."""
    return _verifying.get()


def check_signature(place: Path, manifest: bytes) -> None:
    """Refuse an artefact that the current key, if there is one, has not signed.

    Args:
        place: the artefact's folder.
        manifest: its bytes, as they were read.

    Raises:
        ArtefactError: it is not signed, signed with another key, or altered since.
    """
    key = _verifying.get()
    if key is None or hashlib.sha256(manifest).hexdigest() in _vouched.get():
        return
    path = place / SIGNATURE
    try:
        with open_plain(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ArtefactError(
            f"{place} is not signed (it has no {SIGNATURE}), and only what key {key.name} has signed is taken; its "
            f"maker signs it with penstock sign"
        ) from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error
    found = parse_json(content[:_MOST_BYTES], path, _FIELDS)
    if found["key"] != key.name:
        raise ArtefactError(
            f"{path} was made with key {found['key'][:80]!r}, and only what key {key.name} has signed is taken"
        )
    if not hmac.compare_digest(found["signature"], key.sign(manifest)):
        raise ArtefactError(f"{place / MANIFEST} is not the one that was signed: it, or {path}, was altered since")


def write_signature(place: Path, manifest: bytes, key: SigningKey) -> None:
    """Put the signature of a manifest beside it."""
    content = {"penstock": "signature", "version": 1, "algorithm": ALGORITHM, "key": key.name}
    with replacing(place / SIGNATURE) as partial:
        partial.write_text(json.dumps({**content, "signature": key.sign(manifest)}, indent=1) + "\n")
