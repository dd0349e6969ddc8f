"""Who holds which share, and what is promised to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CONFIGS, GPU, LIMIT, PodBuilder, node, pod
from webhook.policy import Fleet, Profile, Settings, project_node
from webhook.policy.occupancy import Holder, Occupancy, all_holders, has_gpus, holders_of, occupy

MPS4 = Profile("mps-4x", "mps", 4, memory_mib=16000)
ALONE = Profile("mps-1x", "none", 1, memory_mib=16000)
SLICED = Profile("ts-4x", "time-slicing", 4, memory_mib=16000)
UNKNOWN = Profile("mps-4x", "mps", 4)


def on(made: PodBuilder, **status: str) -> dict[str, Any]:
    return {**made.spec(nodeName="n").build(), "status": status}


@pytest.mark.parametrize(
    ("raw", "held"),
    [
        pytest.param(on(pod().gpu()), [("app", 1)], id="one"),
        pytest.param(on(pod().gpu(2)), [("app", 2)], id="two in one container"),
        pytest.param(on(pod().gpu(resource="nvidia.com/gpu.shared")), [("app", 1)], id="renamed"),
        pytest.param(on(pod().gpu().container("b").gpu()), [("app", 1), ("b", 1)], id="two containers"),
        pytest.param(on(pod().gpu().sidecar("s").gpu()), [("s", 1), ("app", 1)], id="sidecar"),
        pytest.param(on(pod().gpu().init("i").gpu()), [("app", 1)], id="init hands over"),
        pytest.param(on(pod().gpu().init("i").gpu(3)), [("i", 2), ("app", 1)], id="init asked for more"),
        pytest.param(on(pod().init("i").gpu().init("j").gpu()), [("i", 1)], id="inits one after the other"),
        pytest.param(on(pod()), [], id="no gpu"),
        pytest.param(on(pod().gpu(resource="nvidia.com/mig-1g.5gb")), [], id="mig is no share"),
        pytest.param(on(pod().gpu(), phase="Pending"), [("app", 1)], id="bound and starting"),
        pytest.param(on(pod().gpu(), phase="Succeeded"), [], id="finished"),
        pytest.param(on(pod().gpu(), phase="Failed"), [], id="failed"),
        pytest.param(pod().gpu().build(), [], id="not bound"),
        pytest.param({"spec": {"nodeName": "n", "containers": "?"}}, [], id="unreadable"),
    ],
)
def test_held(raw: dict[str, Any], held: list[tuple[str, int]]) -> None:
    assert [(h.container, h.shares) for h in holders_of(raw)] == held


@pytest.mark.parametrize(
    ("made", "limit", "mib"),
    [
        pytest.param(pod().gpu(), "share", None, id="none"),
        pytest.param(pod().gpu().env(LIMIT, ""), "share", None, id="empty"),
        pytest.param(pod().gpu().env(LIMIT, "0=3G"), "variable", 3072, id="own"),
        pytest.param(pod().gpu().env(LIMIT, "0=1000M").memory("3000Mi").processes("3"), "variable", 3000, id="three"),
        pytest.param(pod().gpu().env(LIMIT, "4G"), "ignored", None, id="without a device"),
        pytest.param(pod().gpu().env(LIMIT, "all"), "ignored", None, id="nonsense"),
        pytest.param(pod().gpu().entry({"name": LIMIT, "valueFrom": {}}), "unknown", None, id="from elsewhere"),
        pytest.param(pod().gpu().memory("3Gi"), "share", None, id="asked for and not in force"),
    ],
)
def test_limit(made: PodBuilder, limit: str, mib: int | None) -> None:
    (holder,) = holders_of(on(made))
    assert (holder.limit, holder.limit_mib) == (limit, mib)


@pytest.mark.parametrize(
    ("holder", "profile", "mib"),
    [
        pytest.param({}, MPS4, 4000, id="a share"),
        pytest.param({"shares": 2}, MPS4, 8000, id="two shares"),
        pytest.param({"limit": "variable", "limit_mib": 3000}, MPS4, 3000, id="a limit"),
        pytest.param({"limit": "variable", "limit_mib": 3000, "shares": 2}, MPS4, 7000, id="a limit on device 0"),
        pytest.param({"limit": "ignored"}, MPS4, 16000, id="no limit holds"),
        pytest.param({"limit": "unknown"}, MPS4, 4000, id="limit not known"),
        pytest.param({"limit": "variable", "limit_mib": 3000}, ALONE, 16000, id="no MPS, the whole card"),
        pytest.param({"shares": 2}, ALONE, 32000, id="two cards"),
        pytest.param({}, SLICED, None, id="time-slicing promises nothing"),
        pytest.param({}, UNKNOWN, None, id="memory not known"),
    ],
)
def test_promised(holder: dict[str, Any], profile: Profile, mib: int | None) -> None:
    made = Holder("n", "ns", "p", "c", **{"shares": 1, **holder})
    assert made.promised_mib(profile) == mib


def _occupancy(raw: dict[str, Any], *pods: dict[str, Any]) -> Occupancy:
    (found,) = occupy(Fleet([project_node(raw)], CONFIGS, Settings()), all_holders(pods))
    return found


@pytest.mark.parametrize(
    ("raw", "cards", "physical"),
    [
        pytest.param(node("n", cards=2), 2, 30720, id="by the shares"),
        pytest.param(node("n", cards=2, labels={"nvidia.com/gpu.count": "3"}), 3, 46080, id="by label"),
        pytest.param(node("n", labels={"nvidia.com/gpu.count": "x"}), 1, 15360, id="label unreadable"),
        pytest.param(node("n", cards=0), None, None, id="nothing offered"),
        pytest.param(node("n", memory=None), 1, None, id="memory not known"),
    ],
)
def test_cards(raw: dict[str, Any], cards: int | None, physical: int | None) -> None:
    found = _occupancy(raw)
    assert (found.cards, found.physical_mib) == (cards, physical)


def test_more_held_than_offered_leaves_nothing_free() -> None:
    pods = [on(pod().gpu(resource=GPU)) for _ in range(5)]
    found = _occupancy(node("n"), *pods)
    assert (found.shares, found.used, found.free, found.promised_percent) == (4, 5, 0, 125)


def test_unknown_holders_leave_unknown_figures() -> None:
    (found,) = occupy(Fleet([project_node(node("n"))], CONFIGS, Settings()), None)
    assert (found.used, found.free, found.promised_mib, found.promised_percent) == (None, None, None, None)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"nvidia.com/gpu.present": "true"}, True, id="present"),
        pytest.param({"nvidia.com/gpu.present": "false"}, False, id="not present"),
        pytest.param({"nvidia.com/device-plugin.config": "mps-4x"}, True, id="config"),
        pytest.param({"nvidia.com/gpu.count": "1"}, True, id="count"),
        pytest.param({"kubernetes.io/os": "linux"}, False, id="another"),
    ],
)
def test_a_gpu_node_by_label(labels: dict[str, str], expected: bool) -> None:
    assert has_gpus(project_node({"metadata": {"name": "n", "labels": labels}})) is expected
