"""The live view: one view of a moment, a module for each part of the screen."""

from whyidle.monitor.render.live.live_view import LiveView

__all__ = ["LiveView"]
