"""Commands for runs without a terminal: detach, the node as a process or a service, its queue and schedules, notices."""
