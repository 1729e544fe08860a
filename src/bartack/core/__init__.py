"""What everything else stands on: ids, time, canonical JSON, checksums, files, safe paths, redaction, backoff, watches.

Nothing here knows of runs or journals. Importing it is cheap: what is slow to load is loaded by the first
call that needs it.

Read ``disk.py`` for the interface to the disk, ``batch.py`` for what becomes durable together.
"""
