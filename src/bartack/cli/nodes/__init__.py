"""Commands for nights: detach, attach, the node, its queue and schedules, notices, and what was changed."""
