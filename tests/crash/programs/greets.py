"""A program whose step uses a package of the environment that it is executed in."""

import importlib
import os
import shutil
import sys

from bartack import Context, step, worker


@step
async def look(name: str) -> list[str]:
    package = importlib.import_module(name)
    return [package.VERSION, sys.prefix, os.environ.get("VIRTUAL_ENV", ""), shutil.which("python") or ""]


@worker
async def main(ctx: Context, name: str = "greeting") -> list[str]:
    return await look(name)
