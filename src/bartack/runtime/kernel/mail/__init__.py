"""Messages of a run: mailboxes, calls, supervised sends, broadcasts and dead letters.

The state of a mailbox itself is in ``bartack.messaging``. Start with ``mailroom.py`` (sending and receiving).
"""
