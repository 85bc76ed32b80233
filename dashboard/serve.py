"""The server: Streamlit with our routes, behind ``Access``; nothing of the user's own settings."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import plotly
import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.routing import Route
from streamlit import config as streamlit_config
from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import bootstrap

from whyidle.dashboard import front, theme
from whyidle.dashboard.access import Access
from whyidle.dashboard.endpoint import Place, listen
from whyidle.dashboard.headers import headers
from whyidle.monitor.core.interrupts import handled

_PLOTLY: Final = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_PAGE: Final = Path(__file__).with_name("app.py")
_ENDED_BY: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a page sends is a click; more is an attack.
_LONGEST_MESSAGE: Final = 4 << 20


def serve(
    place: Place, bound: socket.socket | None = None, ready: Callable[[], None] | None = None
) -> int | None:
    """Serve until a signal ends us, and return which."""
    bound = bound or listen(place.address, place.port)
    _alone()
    bootstrap.load_config_options(configuration(place))
    wanted = uvicorn.Config(
        application(place),
        # What a machine happens to have installed changes nothing in how requests are read.
        http="h11",
        loop="asyncio",
        ws="websockets-sansio",
        ws_max_size=_LONGEST_MESSAGE,
        log_config=None,
        log_level="critical",
        server_header=False,
        access_log=False,
        # Who ends us does not wait for a page that is still being drawn.
        timeout_graceful_shutdown=0,
    )
    server = _Server(wanted, ready)
    server.run(sockets=[bound])
    return server.ended_by


class _Server(uvicorn.Server):
    """Says when it answers, and ends at the first signal."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.ended_by: int | None = None
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets=sockets)
        if self.started and self._ready is not None:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order, whatever the signal."""
        with handled(_ENDED_BY, self._end):
            yield

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        self.should_exit = True


def application(place: Place) -> st.App:
    """Return the application, with the way in that this place has."""
    # Loaded now, and not for whoever comes first; Streamlit warns less once it has our settings.
    from whyidle.dashboard.pages import PAGES  # noqa: PLC0415

    prefix = f"/{place.base}" if place.base else ""
    page = front.page(place.base)

    async def shown(_request: Request) -> HTMLResponse:
        return HTMLResponse(page, headers={"cache-control": "no-cache"})

    first, *others = PAGES
    routes = [Route(f"{prefix}/{path}", shown) for path in ("", *others)]
    routes.append(Route(f"{prefix}/{first}", _to_the_first))
    routes.append(Route(f"{prefix}/{front.PLOTLY}", _plotly))
    guard: Any = Middleware(Access, place=place, headers=headers(page))
    return st.App(_PAGE, routes=routes, middleware=[guard])


def configuration(place: Place) -> dict[str, Any]:
    """Return Streamlit's settings, closed where its own are open."""
    return {
        "server.address": place.address,
        "server.port": place.port,
        "server.baseUrlPath": place.base,
        "server.headless": True,
        "server.allowedHosts": sorted(place.names),
        "server.fileWatcherType": "none",
        "server.enableAgentApi": False,
        "server.enableStaticServing": False,
        "browser.gatherUsageStats": False,
        # Pages of its makers' may steer a page of Streamlit's; nobody steers this one.
        "client.allowedOrigins": [],
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "logger.level": "error",
        "logger.hideWelcomeMessage": True,
        "runner.magicEnabled": False,
        # A collection of everything after each refresh took as long as all the rest.
        "runner.postScriptGC": False,
        "secrets.files": [],
        **theme.THEME,
    }


def _alone() -> None:
    """Go by nothing but what we say: settings of the user are for programs of the user's own."""
    for name in [name for name in os.environ if name.startswith("STREAMLIT_")]:
        del os.environ[name]
    streamlit_config.get_config_files = _none
    # A folder of that name beside a script is taken for one of scripts: ours has functions.
    PagesManager.uses_pages_directory = False


def _none(file_name: str) -> list[str]:  # noqa: ARG001  as it is called
    return []


async def _to_the_first(request: Request) -> RedirectResponse:
    """Lead to where the first page stands: Streamlit knows it by no name."""
    query = request.url.query
    return RedirectResponse(f"./?{query}" if query else "./", 307)


async def _plotly(_request: Request) -> FileResponse:
    return FileResponse(_PLOTLY, headers={"cache-control": "max-age=86400"})
