"""Running code of others: guarded in this process, or in a child process."""
