"""The parent programs that start processes and end all of them with their hub: zygote, keeper, guardians.

They know tokens and trees of processes, and nothing of workers or restarts. Start with ``_client.py`` (the hub's side) and
``_parent.py`` (the program), then ``_guardian.py``.
"""
