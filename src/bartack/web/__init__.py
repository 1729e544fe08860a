"""``bartack web``: the runs of this user in a browser on this machine, to watch and to act on.

The server reads journals and run directories, and acts through the same Python as the command line. It keeps nothing: it can be
killed at any moment, and no run notices. Only the command imports this package, and names are loaded when they are first used.

Read ``_app.py`` first (what a request passes on its way), then ``_guard.py`` (which requests are answered), ``_server.py`` (the
process) and ``_site.py`` (what all requests share). Its folders, of which each imports only later ones and these modules:

- ``pages/``: HTML, from the templates in ``templates/``, kept up to date by the scripts in ``static/``. Its door says how to add
  a page.
- ``api/``: the endpoints of the JSON API.
- ``streams/``: what a page gets when a run changes. ``streams/_run_stream.py`` says why no page misses or doubles a change.
- ``reading/``: how view models are made of a run; ``reading/_moment.py`` is a run at one of its entries.
- ``following/``: journals that are being read; ``following/_follow.py`` reads a long one while other requests are answered.
- ``models/``: view models, what is shown.
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
