"""Commands for a project: settings, programs, agents."""
