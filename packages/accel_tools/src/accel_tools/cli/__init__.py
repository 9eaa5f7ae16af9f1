"""What the commands of accel-tools share: options, and what is written beside the terminal."""
