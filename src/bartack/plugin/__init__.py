"""What Bartack puts into coding agents: hooks that record what they do."""

__all__: list[str] = []
