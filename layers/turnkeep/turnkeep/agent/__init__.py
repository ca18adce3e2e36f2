"""The agent's side of a turn: the port, turnkeep's own tool loop, and its providers."""
