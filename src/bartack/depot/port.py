"""How the processes of a run reach its large values: by what ``KeptRun.blob_port`` returns, which their orders carry.

Whatever keeps a run, a process of it finds its large values in a directory of this machine: where runs are kept elsewhere, each
value is brought here before a process gets a reference to it.
"""

from __future__ import annotations

from bartack.journal import Blobs
from bartack.journal.file import open_blobs
from bartack.journal.veil import Veil


def open_blob_port(port: str, *, veil: Veil | None = None) -> Blobs:
    """The large values that a port leads to, as this process may use them.

    Args:
        port: See ``KeptRun.blob_port``.
        veil: Hides the secrets in what is put, and puts them back into what is got.
    """
    return open_blobs(port, veil=veil)
