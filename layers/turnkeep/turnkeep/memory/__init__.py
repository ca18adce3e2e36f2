"""Memory entries: what an agent may remember of turns, and the writers that make it."""
