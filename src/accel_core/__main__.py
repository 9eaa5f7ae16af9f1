"""`python -m accel_core` is the `accel` command."""

if __name__ == "__main__":
    from accel_core.cli import main

    main()
