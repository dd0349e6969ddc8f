"""Throwaway and hand-managed certificates: an authority and a pair in one go, kept in memory or written to files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from certs.authority import Authority
from certs.pair import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTHORITY_KEY_FILE = "ca.key"

DEFAULT_LIFETIME = timedelta(days=90)

_PUBLIC = 0o644
_PRIVATE = 0o600


class IssueError(ValueError):
    """Nothing was written; the message is one line for the person at the command line."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A fresh authority and the one pair it has signed; `pair.authorities` is the authority's PEM."""

    authority: Authority
    pair: Pair


def self_signed(
    names: Sequence[str],
    *,
    lifetime: timedelta = DEFAULT_LIFETIME,
    now: datetime | None = None,
) -> Issued:
    """Make an authority and a serving pair for DNS names and IP addresses, both of the same lifetime.

    Raises `IssueError` for no name, for a name that is none and for a lifetime below one second.
    """
    now = datetime.now(UTC) if now is None else now
    if lifetime < timedelta(seconds=1):
        raise IssueError("the lifetime has to be at least one second")
    if not names:
        raise IssueError("a certificate needs at least one name")
    try:
        authority = Authority.new(names[0], lifetime=lifetime, now=now)
        return Issued(authority, authority.issue(names, lifetime=lifetime, now=now))
    except OverflowError:
        raise IssueError("the lifetime ends beyond the year 9999") from None
    except ValueError as error:
        raise IssueError(str(error)) from None


def write_files(issued: Issued, directory: str | Path, *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write `ca.crt`, `ca.key`, `tls.crt` and `tls.key`; return their paths in this order.

    The keys are readable by their owner alone. Raises `IssueError` where one of the files is there already, unless
    `overwrite`, and where the directory cannot be written; the old files are whole then.
    """
    directory = Path(directory)
    contents = {
        AUTHORITIES_FILE: (issued.pair.authorities, _PUBLIC),
        AUTHORITY_KEY_FILE: (issued.authority.private_key_pem, _PRIVATE),
        CERTIFICATE_FILE: (issued.pair.certificate, _PUBLIC),
        KEY_FILE: (issued.pair.private_key, _PRIVATE),
    }
    present = [name for name in contents if os.path.lexists(directory / name)]
    if present and not overwrite:
        raise IssueError(f"{directory} has {', '.join(present)} already; nothing was written")
    drafts = {name: directory / f".{name}.new" for name in contents}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (content, mode) in contents.items():
            drafts[name].unlink(missing_ok=True)
            # Exclusive creation with the final mode: a key is at no moment readable by others, nor written
            # through a link that somebody has put there.
            descriptor = os.open(drafts[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        for name, draft in drafts.items():
            draft.replace(directory / name)
    except OSError as error:
        for draft in drafts.values():
            if draft.parent.is_dir():
                draft.unlink(missing_ok=True)
        raise IssueError(f"{error.filename or directory} cannot be written: {error.strerror}") from None
    return tuple(directory / name for name in contents)
