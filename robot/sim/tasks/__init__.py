"""The simulated tasks, one file each."""
