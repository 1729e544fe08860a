"""``bartack web``: the runs of this user in a browser on this machine, to watch and to act on.

The server reads journals and run directories, and acts through the same Python as the command line. It keeps nothing: it can be
killed at any moment, and no run notices. Only the command imports this package, and names are loaded when they are first used.

Read ``_app.py`` first (what a request passes on its way), then ``_guard.py`` (which requests are answered), ``_server.py`` (the
process) and ``_site.py`` (what all requests share).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.web._app import make_app
    from bartack.web._server import WebRequest, serve_web
    from bartack.web._site import Site
    from bartack.web._socket import ControlAnswer, ControlRequest, ask_server

__all__ = ["ControlAnswer", "ControlRequest", "Site", "WebRequest", "ask_server", "make_app", "serve_web"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_app": "make_app",
        "_server": "WebRequest serve_web",
        "_site": "Site",
        "_socket": "ControlAnswer ControlRequest ask_server",
    },
)
