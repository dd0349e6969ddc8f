"""The pod that everything is measured with, as an API server sent it, and the reviews that carry it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonpatch

from tests.bench import fleet
from webhook.policy import judge_pod

RECORDING = (
    Path(__file__).parent.parent / "fixtures" / "admission-reviews" / "pod-create-annotated-multi-container.json"
)
FILLER = "example.com/description"
NEW_PODS = 2000
BODY_BYTES = 6400
"""What a review of a pod from a Deployment has on the wire; the recording has a little less and is filled up."""


def recorded() -> dict[str, Any]:
    """The review as recorded: an annotated pod of four containers, pinned by nodeSelector."""
    review: dict[str, Any] = json.loads(RECORDING.read_text(encoding="utf-8"))
    return review


def pinned() -> dict[str, Any]:
    """The pod as recorded."""
    pod: dict[str, Any] = recorded()["request"]["object"]
    return pod


def free() -> dict[str, Any]:
    """The same pod without a nodeSelector: it has to be steered."""
    pod = pinned()
    del pod["spec"]["nodeSelector"]
    return pod


def mutate_body() -> bytes:
    """The review for /mutate."""
    return _encoded(_filled())


def new_bodies() -> list[bytes]:
    """Reviews of pods that all ask for something else, more than the service remembers verdicts."""
    review, found = _filled(), []
    annotations = review["request"]["object"]["metadata"]["annotations"]
    for mib in range(1024, 1024 + NEW_PODS):
        annotations["mps.nvidia.com/memory-limit"] = f"{mib}Mi"
        found.append(_encoded(review))
    return found


def validate_body() -> bytes:
    """The review for /validate: the same pod with the patch applied."""
    review = _filled()
    request = review["request"]
    verdict = judge_pod(copy.deepcopy(request["object"]), request["namespace"], fleet.inventory(fleet.FEW, fleet.FEW))
    request["object"] = jsonpatch.apply_patch(request["object"], list(verdict.patch))
    return _encoded(review)


def _filled() -> dict[str, Any]:
    review = recorded()
    annotations = review["request"]["object"]["metadata"]["annotations"]
    annotations[FILLER] = ""
    annotations[FILLER] = "x" * (BODY_BYTES - len(_encoded(review)))
    return review


def _encoded(review: dict[str, Any]) -> bytes:
    """As Go writes it: compact, UTF-8, a line's end at the end."""
    return json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
