"""Launch ranks on the hosts of a job, start their process group, and detect lost ranks."""
