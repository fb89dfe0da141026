"""Standing diagnostics of every run: is the critic right, where does the policy fail."""
