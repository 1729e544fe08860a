"""Reading runs: for each page and each request of the API a function that makes its view model.

Start reading with ``_view.py``: a run at one of its entries, which all these functions take. They do not wait; those that go over
many rows or read files have a twin that lets other requests be answered meanwhile.
"""
