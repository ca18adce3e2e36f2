"""A package that a layer brings."""

NAME = "shared"
