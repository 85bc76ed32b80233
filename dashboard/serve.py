"""The server: Streamlit with our routes, behind ``Access``, without the user's own settings."""

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
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.routing import Match, Route
from starlette.types import Scope
from streamlit import config as streamlit_config
from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import bootstrap

from whyidle.dashboard import index_page, theme
from whyidle.dashboard.access import Access
from whyidle.dashboard.endpoint import Endpoint, listen
from whyidle.dashboard.index_page import headers
from whyidle.monitor.core.interrupts import handled

_PLOTLY: Final = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_PAGE: Final = Path(__file__).with_name("app.py")
_ENDED_BY: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A page only sends clicks; anything larger is an attack.
_LONGEST_MESSAGE: Final = 4 << 20


def serve(
    endpoint: Endpoint, bound: socket.socket | None = None, ready: Callable[[], None] | None = None
) -> int | None:
    """Serve until a signal arrives, and return it."""
    bound = bound or listen(endpoint.address, endpoint.port)
    _ignore_user_settings()
    bootstrap.load_config_options(configuration(endpoint))
    wanted = uvicorn.Config(
        application(endpoint),
        # Fixed, so that requests are parsed the same whatever the machine has installed.
        http="h11",
        loop="asyncio",
        ws="websockets-sansio",
        ws_max_size=_LONGEST_MESSAGE,
        log_config=None,
        log_level="critical",
        server_header=False,
        access_log=False,
        # Shutdown does not wait for a page that is still being drawn.
        timeout_graceful_shutdown=0,
    )
    server = _Server(wanted, ready)
    server.run(sockets=[bound])
    return server.ended_by


class _Server(uvicorn.Server):
    """A server that reports when it is ready, and ends at the first signal."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.ended_by: int | None = None
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report that the server is ready."""
        await super().startup(sockets=sockets)
        if self.started and self._ready is not None:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down cleanly, whatever the signal."""
        with handled(_ENDED_BY, self._end):
            yield

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        self.should_exit = True


def application(endpoint: Endpoint) -> st.App:
    """Return the application for this endpoint."""
    # Loaded now rather than at the first request, and after Streamlit has our settings.
    from whyidle.dashboard.pages import PAGES, of_no_run  # noqa: PLC0415

    prefix = f"/{endpoint.base}" if endpoint.base else ""
    page = index_page.page(endpoint.base)

    async def shown(_request: Request) -> HTMLResponse:
        return HTMLResponse(page, headers={"cache-control": "no-cache"})

    titles = {path: title for path, (title, _) in (PAGES | of_no_run()).items()}
    lost = index_page.nowhere(endpoint.base, titles)

    async def nowhere(_request: Request) -> HTMLResponse:
        return HTMLResponse(lost, 404)

    first, *others = titles
    routes = [Route(f"{prefix}/{path}", shown) for path in ("", *others)]
    routes.append(Route(f"{prefix}/{first}", _redirect_to_first))
    routes.append(Route(f"{prefix}/{index_page.PLOTLY}", _plotly))
    routes.append(_OfNoPage(f"{prefix}/{{name}}", nowhere))
    guard: Any = Middleware(Access, endpoint=endpoint, headers=headers(page))
    return st.App(_PAGE, routes=routes, middleware=[guard])


class _OfNoPage(Route):
    """What a person types that is no page; programs, and files of Streamlit's, are not meant."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether this route answers."""
        found, inner = super().matches(scope)
        if found is Match.FULL:
            name = inner["path_params"]["name"]
            accepts = Headers(scope=scope).get("accept", "")
            if "text/html" not in accepts or name.startswith("_") or "." in name:
                return Match.NONE, {}
        return found, inner


def configuration(endpoint: Endpoint) -> dict[str, Any]:
    """Return Streamlit's settings, stricter than its defaults."""
    return {
        "server.address": endpoint.address,
        "server.port": endpoint.port,
        "server.baseUrlPath": endpoint.base,
        "server.headless": True,
        "server.allowedHosts": sorted(endpoint.names),
        "server.fileWatcherType": "none",
        "server.enableAgentApi": False,
        "server.enableStaticServing": False,
        "browser.gatherUsageStats": False,
        # By default, pages of Streamlit's makers may control an app. Not this one.
        "client.allowedOrigins": [],
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "logger.level": "error",
        "logger.hideWelcomeMessage": True,
        "runner.magicEnabled": False,
        # A full garbage collection after each refresh took as long as the rest.
        "runner.postScriptGC": False,
        "secrets.files": [],
        **theme.THEME,
    }


def _ignore_user_settings() -> None:
    """Ignore the user's Streamlit settings: they are for the user's own apps."""
    for name in [name for name in os.environ if name.startswith("STREAMLIT_")]:
        del os.environ[name]
    streamlit_config.get_config_files = _none
    # Streamlit would take our ``pages`` folder for scripts; it has functions.
    PagesManager.uses_pages_directory = False


def _none(file_name: str) -> list[str]:  # noqa: ARG001  Streamlit calls it so
    return []


async def _redirect_to_first(request: Request) -> RedirectResponse:
    """Redirect to the first page: Streamlit has no name for it."""
    query = request.url.query
    return RedirectResponse(f"./?{query}" if query else "./", 307)


async def _plotly(_request: Request) -> FileResponse:
    return FileResponse(_PLOTLY, headers={"cache-control": "max-age=86400"})
