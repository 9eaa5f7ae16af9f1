"""Run third-party code: guarded in this process, or in a child process."""
