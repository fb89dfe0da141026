"""Commands of the world model: what is configured, read, trained, costed and reported."""
