"""What a program sees: ``ctx`` and its parts, mailboxes, ``@worker`` and ``@step``.

Everything here becomes an operation of the scheduler. Start with ``context.py``.
"""
