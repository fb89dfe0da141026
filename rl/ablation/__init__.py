"""Ablations: a recorded run shown again to changed learners, without a robot, and what can be said of them."""
