"""A module that a second layer brings."""

NAME = "agent"
