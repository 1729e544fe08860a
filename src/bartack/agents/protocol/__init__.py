"""The line protocol that agent programs speak: messages, lines, ids."""
