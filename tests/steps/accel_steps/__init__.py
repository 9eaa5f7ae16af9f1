"""The table of next steps: collected from the code, and followed."""
