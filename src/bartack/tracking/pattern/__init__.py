"""Patterns and their events: ids, similarity, analytics, the tracker."""
