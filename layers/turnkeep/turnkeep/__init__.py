"""turnkeep keeps an agent's conversation when every turn of it is run by a fresh agent."""

__version__ = "0.1.0"
