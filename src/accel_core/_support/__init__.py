"""Tools of every layer: torch and startup, metadata, output kept quiet, children. Private."""
