"""The commands of `accel`, a file each."""
