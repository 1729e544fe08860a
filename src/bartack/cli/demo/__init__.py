"""The demonstration: a team that is killed and resumed."""
