"""The annotations of the domain ``mps.nvidia.com``: their keys, and what their values say.

Pod-wide keys are ``mps.nvidia.com/<name>``; ``<name>.mps.nvidia.com/<container>`` is the same for one container and
beats the pod-wide one. The API server keeps the case of annotation keys, so the domain is compared in lower case and
every key that is not exactly one of ours is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from webhook.policy.domain import DOMAIN, keys_of
from webhook.policy.findings import Finding
from webhook.policy.pod import shown
from webhook.policy.quantity import MIB, parse_quantity

MEMORY_LIMIT = "memory-limit"
THREAD_PERCENTAGE = "active-thread-percentage"
PROCESSES = "processes"
HOST_IPC = "host-ipc"

PER_CONTAINER = (MEMORY_LIMIT, THREAD_PERCENTAGE, PROCESSES)
NAMES = (*PER_CONTAINER, HOST_IPC)

Value = int | bool | None
"""A value that was read: MiB, percent, a count, true or false; None where it cannot be read."""

_SIZE_MEANT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt])i?b?\s*", re.IGNORECASE)
_WHOLE_MEANT = re.compile(r"\s*0*([1-9][0-9]{0,8})(?:\.[0-9]+)?\s*%?\s*")
_WHOLE = re.compile(r"[1-9][0-9]{0,8}")


class Key(NamedTuple):
    """A key of ours: the name, and the container where it is for one alone."""

    name: str
    container: str | None = None

    def __str__(self) -> str:
        return f"{DOMAIN}/{self.name}" if self.container is None else f"{self.name}.{DOMAIN}/{self.container}"


@dataclass(frozen=True, slots=True)
class Annotations:
    """The keys of the domain on one object: those that are ours with their values, the others, what is wrong.

    ``texts`` are the values as a message quotes them.
    """

    values: Mapping[Key, Value]
    texts: Mapping[Key, str]
    unknown: tuple[str, ...]
    problems: tuple[Finding, ...]

    def key(self, name: str, container: str) -> Key | None:
        """The key that speaks for a container: its own, else the pod-wide one, else None."""
        own, wide = Key(name, container), Key(name)
        return own if own in self.values else wide if wide in self.values else None


_NONE = Annotations({}, {}, (), ())


def field_of(key: str | Key) -> str:
    """How a message names an annotation."""
    return f"metadata.annotations[{shown(str(key), 100)}]"


def read_annotations(raw: Mapping[str, Any]) -> Annotations:
    """Read all keys of the domain; values that are not of their form are None and have a finding each."""
    own = keys_of(raw)
    if not own:
        return _NONE
    values: dict[Key, Value] = {}
    unknown: list[str] = []
    problems: list[Finding] = []
    for text, value in own.items():
        key = _read_key(text)
        if key is None:
            unknown.append(text)
        elif not isinstance(value, str):
            values[key] = None
            plain = isinstance(value, bool | int | float)
            hint = f'put it in quotes: "{shown(value)}"' if plain else "write it as one"
            problems.append(_invalid(key, f"{shown(value)} is no string", hint))
        else:
            read = _READERS[key.name](value)
            values[key] = None if isinstance(read, _Wrong) else read
            if isinstance(read, _Wrong):
                problems.append(_invalid(key, read.problem, read.hint))
    return Annotations(values, {k: shown(own[str(k)]) for k in values}, tuple(unknown), tuple(problems))


def nearest(key: str) -> str:
    """The real key that a mistaken one most likely means."""
    prefix, _, rest = key.partition("/")
    owner = prefix[: -len(DOMAIN)].rstrip(".").lower()
    if not owner:
        return str(Key(_closest(rest, NAMES)))
    if rest.lower() in PER_CONTAINER:
        return str(Key(rest.lower(), owner))  # name and container the wrong way round
    return str(Key(_closest(owner, PER_CONTAINER), rest))


def _read_key(text: str) -> Key | None:
    prefix, _, rest = text.partition("/")
    if prefix == DOMAIN and rest in NAMES:
        return Key(rest)
    name = prefix.removesuffix("." + DOMAIN)
    return Key(name, rest) if name != prefix and name in PER_CONTAINER else None


def _closest(word: str, names: tuple[str, ...]) -> str:
    # A key that was not validated yet may be of any length, and the comparison's cost grows with it.
    return get_close_matches(word[:64].lower(), names, n=1, cutoff=0.0)[0]


@dataclass(frozen=True, slots=True)
class _Wrong:
    problem: str
    hint: str


def _memory_limit(text: str) -> int | _Wrong:
    try:
        quantity = parse_quantity(text)
    except ValueError:
        meant = _SIZE_MEANT.fullmatch(text)
        hint = (
            f"write {meant[1]}{meant[2].upper()}i"
            if meant and len(text) < 32
            else "write a quantity such as 3Gi or 3072Mi"
        )
        return _Wrong(f'"{shown(text)}" is no Kubernetes quantity', hint)
    if quantity <= 0:
        return _Wrong(f'"{shown(text)}" is not above zero', "write a quantity such as 3Gi or 3072Mi")
    if quantity < MIB:
        return _Wrong(f'"{shown(text)}" is less than 1Mi', "write a quantity such as 3Gi or 3072Mi")
    return int(quantity) // MIB


def _thread_percentage(text: str) -> int | _Wrong:
    if _WHOLE.fullmatch(text) and int(text) <= 100:
        return int(text)
    meant = _WHOLE_MEANT.fullmatch(text)
    sure = meant is not None and int(meant[1]) <= 100
    hint = f"write {meant[1]}" if meant and sure else "write a whole number from 1 to 100"
    return _Wrong(f'"{shown(text)}" is no whole number from 1 to 100', hint)


def _processes(text: str) -> int | _Wrong:
    if _WHOLE.fullmatch(text):
        return int(text)
    return _Wrong(
        f'"{shown(text)}" is no whole number of 1 or more', "write how many CUDA processes the container runs"
    )


def _host_ipc(text: str) -> bool | _Wrong:
    if text in ("true", "false"):
        return text == "true"
    meant = {"true": "true", "yes": "true", "1": "true", "on": "true", "false": "false", "no": "false", "0": "false"}
    word = meant.get(text.strip().lower())
    hint = f'write "{word}"' if word else 'write "true" or "false"'
    return _Wrong(f'"{shown(text)}" is neither "true" nor "false"', hint)


_READERS: Mapping[str, Callable[[str], Value | _Wrong]] = {
    MEMORY_LIMIT: _memory_limit,
    THREAD_PERCENTAGE: _thread_percentage,
    PROCESSES: _processes,
    HOST_IPC: _host_ipc,
}

_CODES = {
    MEMORY_LIMIT: "invalid-memory-limit",
    THREAD_PERCENTAGE: "invalid-thread-percentage",
    PROCESSES: "invalid-processes",
    HOST_IPC: "invalid-host-ipc",
}


def _invalid(key: Key, problem: str, hint: str) -> Finding:
    return Finding(_CODES[key.name], "deny", field_of(key), problem, hint)
