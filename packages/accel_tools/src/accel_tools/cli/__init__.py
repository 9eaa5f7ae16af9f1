"""Parts that the commands of accel-tools share: options, and output in other places than the terminal."""
