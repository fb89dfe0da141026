"""Commands of the reward model: what is configured, read from stores, replayed and reported."""
