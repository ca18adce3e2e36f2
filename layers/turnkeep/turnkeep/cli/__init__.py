"""``turnkeep`` at the command line: what an operator does with a table, on AWS or on the local stack."""
