"""The ports' implementations on AWS."""
