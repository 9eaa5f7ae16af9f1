"""Ranks: what a launcher gives them, and how they start and end together."""
