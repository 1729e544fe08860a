"""The rules that a plugin keeps, stricter than those of Claude Code, which accepts misspelt keys and names that do not match.

No I/O: a plugin is its files by path. Start with ``_check.py``; ``_front_matter.py`` is the head of a Markdown file,
``_documents.py`` has the rules of skills, commands and agents, ``_json_files.py`` those of the JSON files.
"""
