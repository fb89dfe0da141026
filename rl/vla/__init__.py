"""Post-training of a language-conditioned policy: group-relative, in the world model, anchored on the robot."""
