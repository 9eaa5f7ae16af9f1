"""What this machine has, found without torch and without any vendor's package."""
