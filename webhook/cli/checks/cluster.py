"""The cluster as the checks see it: each thing looked at once, by the first check that needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from webhook.cli import installed
from webhook.cluster.objects import CONFIG_MAP, DAEMON_SET, NODE, POD, Answer, CannotLookError, Object, Objects
from webhook.policy import DeviceConfig, Fleet, Inventory, Settings, project_node
from webhook.policy.occupancy import Holder, Occupancy, all_holders, occupy

if TYPE_CHECKING:
    from webhook.settings import WebhookSettings

DryRun = Callable[[Mapping[str, Any]], Answer]
"""Has a pod admitted and not stored. Raises CannotLookError."""


class Cluster:
    """Objects, settings, the moment. Every property raises CannotLookError where it cannot be looked at.

    ``given`` are settings named by the person who asks, None where those of the cluster are to be found out;
    ``dry_run`` is None where there is no API server to ask, ``namespace`` is where it has pods admitted.
    """

    def __init__(
        self,
        objects: Objects,
        now: datetime,
        given: WebhookSettings | None = None,
        dry_run: DryRun | None = None,
        namespace: str = "default",
    ) -> None:
        self.objects = objects
        self.now = now
        self.dry_run = dry_run
        self.namespace = namespace
        self._given = given

    @cached_property
    def own_settings(self) -> tuple[WebhookSettings, tuple[str, ...]] | None:
        """The settings of the webhook that is installed, and what is wrong with them; None where others are given."""
        return installed.settings_of(self.objects) if self._given is None else None

    @cached_property
    def _all_settings(self) -> WebhookSettings:
        if self._given is not None:
            return self._given
        try:
            return installed.settings_of(self.objects)[0]
        except CannotLookError:
            # A check of its own says so. The others can be answered by the defaults.
            from webhook.settings import WebhookSettings

            return WebhookSettings.load()

    @cached_property
    def settings(self) -> Settings:
        """The settings to judge by."""
        return self._all_settings.policy()

    @property
    def config_map_name(self) -> str:
        """Namespace and name of the ConfigMap of device-plugin configurations."""
        return self._all_settings.config_map

    @cached_property
    def config_map(self) -> Object | None:
        """The ConfigMap of device-plugin configurations, None where it does not exist."""
        namespace, _, name = self.config_map_name.partition("/")
        return self.objects.get(CONFIG_MAP, namespace, name)

    @cached_property
    def configs(self) -> Mapping[str, DeviceConfig]:
        """The configurations that a device plugin would start with, by name; the others are left out."""
        return installed.configs_of(self.config_map)[0]

    @cached_property
    def inventory(self) -> Inventory:
        """What the webhook decides by, as far as pods without host IPC need it."""
        try:
            nodes = [project_node(raw) for raw in self.objects.each(NODE)]
        except ValueError as error:
            raise CannotLookError(f"nodes: {error}") from None
        return Inventory(Fleet(nodes, self.configs, self.settings))

    @cached_property
    def nodes(self) -> tuple[Occupancy, ...]:
        """The GPU nodes, sorted by name, without their holders."""
        return occupy(self.inventory.fleet, None)

    @cached_property
    def holders(self) -> tuple[Holder, ...]:
        """The containers that hold shares."""
        return tuple(all_holders(self.objects.each(POD)))

    @cached_property
    def daemon_sets(self) -> tuple[Object, ...]:
        """The DaemonSets beside which the device plugin's lies."""
        return tuple(self.objects.each(DAEMON_SET, installed.RUNTIME_NAMESPACE))
