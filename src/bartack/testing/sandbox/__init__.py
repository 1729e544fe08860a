"""Real agent programs in a test: an environment built from nothing, no network but the model server, nothing left running.

Read ``_sandbox.py`` first. ``_programs.py`` finds the programs, ``_environment.py`` builds the environment and the files,
``_network.py`` keeps the programs off the network, and ``_lone_network.py`` is the program that makes a network of its own.
"""
