"""Run the `accel` command as `python -m accel_core`."""

if __name__ == "__main__":
    from accel_core.cli import main

    main()
