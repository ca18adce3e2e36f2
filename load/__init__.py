"""``make load``: many people at once on a local stack, some processes are killed, what became of it is counted."""
