"""The domain of our annotations, ``mps.nvidia.com``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOMAIN = "mps.nvidia.com"


def in_domain(key: str) -> bool:
    """Whether a key belongs to the domain or one below it, in any case of letters."""
    prefix, slash, _ = key.lower().partition("/")
    return slash == "/" and (prefix == DOMAIN or prefix.endswith("." + DOMAIN))


def keys_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a map of annotations or labels that are of the domain."""
    return {k: v for k, v in metadata.items() if in_domain(k)}
