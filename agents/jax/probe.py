"""The probe ``jax``: its parts."""

from __future__ import annotations

from ..framework import FrameworkProbe


class JaxProbe(FrameworkProbe):
    """One life of the probe."""

    name = "jax"
    module = "jax"
    parts = ()
