"""The parent programs that start processes and end all of them with their hub: zygote, keeper, guardians.

They know tokens and trees of processes, and nothing of workers or restarts. Start with ``client.py`` (the hub's side) and
``parent.py`` (the program), then ``guardian.py``.
"""
