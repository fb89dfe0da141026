"""The learner's mathematics: soft actor-critic with prior data, and the policy that acts."""
