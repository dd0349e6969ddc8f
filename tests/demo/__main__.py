"""``make demo``: the real service with throwaway certificates and a small fleet, asked as an API server asks it.

Starts ``mps-webhook serve``, sends each pod as an AdmissionReview over TLS to /mutate and, patched, to /validate, and
prints what a person would see at ``kubectl apply``. Then it stops the service.
"""

from __future__ import annotations

import base64
import http.client
import json
import signal
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jsonpatch

from webhook import kubeyaml

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "deploy" / "examples"
DOCUMENTED = ("basic.yaml", "limits-by-variable.yaml", "pinned-config.yaml")
WEBHOOK = "pods.mps.nvidia.com"


def main() -> None:
    """Run the demo; exits with 1 where an answer is not as it should be."""
    with serving() as connection:
        print("\n── the documented pods")
        answers = [show(connection, pod) for name in DOCUMENTED for pod in read(EXAMPLES / name)]
        print("\n── a quota, a pod that is steered, three that are rejected")
        answers += [show(connection, pod) for pod in read(HERE / "pods.yaml")]
    wanted = [True] * 5 + [False] * 3
    if answers != wanted:
        sys.exit(f"answers {answers}, wanted {wanted}")
    print(f"\n{answers.count(True)} pods created, {answers.count(False)} rejected; the service has stopped")


@contextmanager
def serving() -> Iterator[http.client.HTTPSConnection]:
    """The service on free loopback ports, and a connection to it that trusts its CA alone."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("mps-webhook"),
        "serve",
        "--self-signed",
        "--host",
        "127.0.0.1",
    ]
    command += ["--port", "0", "--health-port", "0", "--nodes", HERE / "nodes.yaml", "--configs", HERE / "configs.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            said = {}
            for line in process.stdout or ():
                key, _, value = line.strip().partition(": ")
                said[key] = value
                if key == "ready":
                    break
            else:
                sys.exit("the service did not start")
            print(f"serving on {said['https']}, CA {said['ca']}")
            context = ssl.create_default_context(cafile=said["ca"])
            port = int(said["https"].rpartition(":")[2])
            with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)) as connection:
                yield connection
        finally:
            process.send_signal(signal.SIGINT)  # SIGTERM would drain first


def show(connection: http.client.HTTPSConnection, pod: dict[str, Any]) -> bool:
    """Send one pod, print the answer as kubectl would, return whether the pod is created."""
    name = pod["metadata"]["name"]
    print(f"\n$ kubectl apply -f {name}.yaml")
    response = review(connection, "/mutate", pod)
    for warning in response.get("warnings") or ():
        print(f"Warning: {warning}")
    if not response["allowed"]:
        message = response["status"]["message"]
        print(f'Error from server (Forbidden): admission webhook "{WEBHOOK}" denied the request: {message}')
        return False
    patch = json.loads(base64.b64decode(response.get("patch") or b"W10="))
    patched = jsonpatch.apply_patch(pod, patch)
    if not review(connection, "/validate", patched)["allowed"]:
        sys.exit("/validate denies what /mutate made")
    print(f"pod/{name} created")
    for operation in patch:
        print(f"  patched: {operation['op']} {operation['path']} {json.dumps(operation['value'])}")
    return True


def review(connection: http.client.HTTPSConnection, path: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Ask about one pod the way the API server does; the AdmissionReview's response."""
    uid = str(uuid.uuid4())
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team-a",
        "name": pod["metadata"]["name"],
        "operation": "CREATE",
        "dryRun": False,
        "object": pod,
    }
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    connection.request("POST", f"{path}?timeout=10s", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        sys.exit(f"{path}: HTTP {reply.status}: {text.decode()}")
    response: dict[str, Any] = json.loads(text)["response"]
    if response["uid"] != uid:
        sys.exit(f"{path}: the answer is for another request")
    return response


def read(path: Path) -> list[dict[str, Any]]:
    """The objects of a YAML file."""
    return kubeyaml.load_all(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
