"""The ConfigMap of device-plugin configurations, kept usable while somebody edits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webhook.policy import ConfigError, DeviceConfig, parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ConfigMapData:
    """What is kept of a ConfigMap: the text of each key, in order of the keys."""

    texts: tuple[tuple[str, str], ...]


def project_config_map(raw: Mapping[str, Any]) -> ConfigMapData:
    """The texts of a ConfigMap object. Raises ValueError on an object that is none."""
    data = raw.get("data") or {}
    if not isinstance(data, dict) or not all(isinstance(text, str) for text in data.values()):
        raise ValueError("not a ConfigMap object")
    return ConfigMapData(tuple(sorted(data.items())))


class ConfigKeeper:
    """Keeps, for each key, the last configuration that the device plugin would start with.

    A key that was taken out is gone; so does the device plugin see it. A key that no longer parses, or a ConfigMap that
    was deleted, is taken for a mistake in the making: what was good goes on to hold, and ``problems`` says so.
    """

    def __init__(self, config_map: str) -> None:
        self._name = config_map
        self._good: dict[str, tuple[str, DeviceConfig]] = {}
        self._seen = False
        self.problems: tuple[str, ...] = ()

    @property
    def configs(self) -> dict[str, DeviceConfig]:
        """The configurations in force, by name."""
        return {name: config for name, (_, config) in self._good.items()}

    def update(self, data: ConfigMapData | None) -> None:
        """Take over what the API server has now; None where the ConfigMap does not exist."""
        if data is None:
            self.problems = (
                f"ConfigMap {self._name} is gone, keeping the last good one"
                if self._seen
                else f"ConfigMap {self._name} does not exist, nodes are judged by their labels alone",
            )
            return
        self._seen = True
        good: dict[str, tuple[str, DeviceConfig]] = {}
        problems = []
        for name, text in data.texts:
            last = self._good.get(name)
            if last is not None and last[0] == text:
                good[name] = last
                continue
            try:
                good[name] = (text, parse_config(text))
            except ConfigError as error:
                kept = "keeping the last good one" if last else "and there is no earlier one"
                problems.append(f"config {name} does not parse, {kept}: {error}")
                if last is not None:
                    good[name] = last
        self._good = good
        self.problems = tuple(problems)
