"""The table of the API's endpoints, and the descriptions that are made of it. Start reading with ``_endpoints.py``."""
