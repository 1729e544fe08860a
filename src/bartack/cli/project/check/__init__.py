"""``bartack check``."""
