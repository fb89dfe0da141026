"""Where workers run and what they share: the run directory, the inline and the local runtime."""
