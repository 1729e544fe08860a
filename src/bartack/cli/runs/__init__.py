"""Commands that run, watch and steer runs."""
