"""What turnkeep does, one verb a file. No AWS, no HTTP."""
