"""``make chaos``: kills real processes on the local stack, loses calls, stops clocks; writes what happened."""
