"""Checks plugins with Claude Code and installs them there, by its own commands; its JSON files are never edited.

``_claude.py`` finds and calls the program, ``_validate.py`` checks a folder, ``_marketplace.py`` is the local marketplace,
``_install.py`` installs and uninstalls, ``_verify.py`` checks what is installed, ``_dev.py`` tries a plugin without installing it.
"""
