"""The probe ``torch``: its parts."""

from __future__ import annotations

from ..framework import FrameworkProbe


class TorchProbe(FrameworkProbe):
    """One life of the probe."""

    name = "torch"
    module = "torch"
    parts = ()
