"""What the figures were taken on: they mean little without it."""

from __future__ import annotations

import os
import platform
import ssl
from importlib.metadata import version
from pathlib import Path
from typing import Any

from webhook import __version__

LIBRARIES = ("uvicorn", "uvloop", "httptools", "jsonpatch", "prometheus-client")


def described() -> dict[str, Any]:
    """Versions, CPU and load, ready for JSON."""
    return {
        "mps-webhook": __version__,
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        **{name: version(name) for name in LIBRARIES},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load average": [round(value, 2) for value in os.getloadavg()],
    }


def cpu_model() -> str:
    """The name that the kernel has for the first CPU, with its number in the vendor's list of models."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    fields: dict[str, str] = {}
    for key, separator, value in (line.partition(":") for line in lines):
        if separator:
            fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", platform.processor())
    return f"{name}, family {fields['cpu family']} model {fields['model']}" if "model" in fields else name
