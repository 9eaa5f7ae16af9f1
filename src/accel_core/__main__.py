"""`python -m accel_core` is the `accel` command."""

from accel_core.cli import main

if __name__ == "__main__":
    main()
