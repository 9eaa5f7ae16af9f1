"""What every layer may use: torch and startup, metadata, output kept quiet, children. Private."""
