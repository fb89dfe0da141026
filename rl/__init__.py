"""The learner, the loop and the commands."""
