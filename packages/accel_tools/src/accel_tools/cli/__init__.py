"""Parts that the commands of accel-tools share: options, and output besides the terminal's."""
