"""Code that the commands of accel-tools share: options, fixes and the progress line."""
