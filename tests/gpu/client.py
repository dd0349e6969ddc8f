"""A CUDA client without a compiler: the driver API over ctypes, one JSON line per answer.

``python client.py [--cap MIB] [--hold]``: initialise, create the primary context, report processors and memory, then
allocate 16 MiB blocks until the driver refuses or the cap is reached. With ``--hold`` it keeps all of it until standard
input closes. It runs under whatever interpreter starts it and imports the standard library alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys

MIB = 1 << 20
BLOCK_MIB = 16
MULTIPROCESSOR_COUNT = 16


class DriverError(Exception):
    """A driver call failed; the text is the driver's name for the error."""


class Driver:
    """The few calls that are needed, each raising DriverError unless it succeeds."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver."""
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError((text.value or b"").decode() or str(code))

    def devices(self) -> int:
        """How many devices this process sees."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def enter(self) -> int:
        """Create device 0's primary context and make it current; the device's handle."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        return device.value

    def processors(self, device: int) -> int:
        """Streaming multiprocessors that this context may use."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), MULTIPROCESSOR_COUNT, device)
        return value.value

    def memory(self) -> tuple[int, int]:
        """Free and total memory as this client is told, MiB."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value // MIB, total.value // MIB

    def allocate(self, mib: int) -> None:
        """Take that much memory for good."""
        self.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib * MIB))


def run(cap_mib: int) -> dict[str, object]:
    """Go as far as the driver lets us; ``stage`` names the step that failed, or ``done``."""
    found: dict[str, object] = {"stage": "init"}
    try:
        driver = Driver()
        driver.call("cuInit", 0)
        found |= {"stage": "devices", "devices": driver.devices()}
        found["stage"] = "context"
        device = driver.enter()
        found |= {"stage": "info", "processors": driver.processors(device)}
        free, total = driver.memory()
        found |= {"stage": "allocate", "free_mib": free, "total_mib": total, "allocated_mib": 0}
        taken = 0
        while taken + BLOCK_MIB <= cap_mib:
            driver.allocate(BLOCK_MIB)
            taken += BLOCK_MIB
            found["allocated_mib"] = taken
        found["stage"] = "done"
    except DriverError as error:
        found["error"] = str(error)
    return found


def main() -> None:
    """Print what was found; hold it where asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cap", type=int, default=8192)
    parser.add_argument("--hold", action="store_true")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.cap)), flush=True)
    if arguments.hold:
        sys.stdin.read()


if __name__ == "__main__":
    main()
