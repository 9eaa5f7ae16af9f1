"""The machine's hardware, detected without torch and without any vendor's package."""
