"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "hint", "problem", "unseen", "skipped"]
"""``hint``: sound, but perhaps not what was meant. ``unseen``: it could not be looked at."""


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that was looked at. ``mend`` is the command that mends it, or shows more; empty where all is well."""

    check: str
    subject: str
    status: Status
    message: str
    mend: str = ""
