"""``bartack doctor``."""
