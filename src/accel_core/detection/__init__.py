"""Entry points in, a `Selection` out."""
