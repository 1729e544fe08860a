"""The daemon of a user: takes in events from hooks and delivers them."""
