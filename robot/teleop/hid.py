"""Finds and opens a SpaceMouse through hidapi, imported lazily; says what is missing where that fails."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from robot.interfaces import DeviceError
from robot.teleop.puck import MODELS

AXES_USAGE = (1, 8)  # generic desktop, multi-axis controller; receivers show a keyboard and a mouse as well
UDEV_RULE = 'KERNEL=="hidraw*", KERNELS=="*:{vendor:04X}:*", MODE="0660", TAG+="uaccess"'


class HidDevice(Protocol):
    """An open device that never blocks."""

    def read(self, max_length: int) -> Sequence[int]:
        """The next report with its id, empty where there is none; raises OSError where the device is gone."""

    def close(self) -> None: ...


def open_spacemouse(product_id: int | None = None) -> tuple[str, HidDevice]:
    """Name and device of the first SpaceMouse, or of the one of this product; raises DeviceError with the remedy."""
    hid = _load_hidapi()
    seen = hid.enumerate()
    entry = choose(seen, product_id)
    model = MODELS[entry["vendor_id"], entry["product_id"]]
    device = hid.device()
    try:
        device.open_path(entry["path"])
        device.set_nonblocking(True)
    except OSError as error:
        rule = UDEV_RULE.format(vendor=entry["vendor_id"])
        raise DeviceError(
            f"spacemouse: found the {model}, but may not open it ({error}); as root, write the line\n  {rule}\ninto "
            "/etc/udev/rules.d/70-spacemouse.rules, run `udevadm control --reload`, and plug it in again. Where "
            "spacenavd runs, stop it"
        ) from error
    return f"spacemouse {model}", device


def choose(seen: Sequence[Mapping[str, Any]], product_id: int | None) -> Mapping[str, Any]:
    """The entry of hidapi's list that carries the axes; raises DeviceError that lists what is there."""
    fitting = [
        entry
        for entry in seen
        if (entry["vendor_id"], entry["product_id"]) in MODELS and product_id in (None, entry["product_id"])
    ]
    if not fitting:
        names = sorted({f"{entry['vendor_id']:04x}:{entry['product_id']:04x}" for entry in seen})
        wanted = "a 3Dconnexion device" if product_id is None else f"product {product_id:04x}"
        raise DeviceError(
            f"spacemouse: expected {wanted}, seen (vendor:product): {', '.join(names) or 'none'}; plug it in, or "
            "switch it on and pair it"
        )
    # Some systems do not tell the usage; then the first interface carries the axes.
    return min(fitting, key=lambda entry: (entry.get("usage_page"), entry.get("usage")) != AXES_USAGE)


def _load_hidapi() -> Any:
    try:
        # The kernel's own driver also knows Bluetooth, and needs no rights on the USB device.
        if sys.platform == "linux":
            import hidraw as hid
        else:
            import hid
    except ImportError as error:
        raise DeviceError(
            "spacemouse: needs hidapi (not the package `hid`); install it: pip install 'groundhog[teleop]'"
        ) from error
    return hid
