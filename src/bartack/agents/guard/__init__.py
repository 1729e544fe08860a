"""The guard: reads the command or the path of a tool call and decides whether it may destroy what cannot be restored.

It starts nothing and needs no message library, so that a hook can use it: a verdict costs milliseconds. Read ``guard.py`` (the
verdict), then ``_reader.py`` (how a command is read), ``_judge.py`` and ``_rules.py`` (the built-in rules).
"""
