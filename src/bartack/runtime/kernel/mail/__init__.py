"""Messages of a run: mailboxes, calls, supervised sends, broadcasts and dead letters.

It decides what happens to messages; what a mailbox holds is in ``bartack.messaging``. Start with ``enqueue.py``, which states what
senders and receivers can rely on, then read ``receive.py`` and ``held.py``. ``mailroom.py`` puts the parts together.
"""
