"""The ledger: the one home of what is true about a conversation."""
