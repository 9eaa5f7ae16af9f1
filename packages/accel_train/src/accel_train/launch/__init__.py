"""Ranks: what a launcher gives them, how they start together and how they end together."""
