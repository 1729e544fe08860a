"""A model server that answers from scripts, for tests with real agent programs and no model.

Read ``_director.py`` first: which step answers a request, without I/O. ``_script.py`` has the steps, ``_conversation.py`` the
common part of all APIs, ``_messages.py``, ``_responses.py`` and ``_chat.py`` one API each, ``_http.py`` the connections,
``_server.py`` the public class.
"""
