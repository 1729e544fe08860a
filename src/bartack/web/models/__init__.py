"""View models: what pages show and what the JSON of the API is made of. Frozen values, without behaviour.

Start reading with ``_run.py``. Moments are microseconds since 1970, UTC, and end in ``_at``; durations are seconds and end in
``_s``. A member that has its default is absent from JSON. Texts are without secrets, and otherwise as they were: they are escaped
where they become markup.
"""
