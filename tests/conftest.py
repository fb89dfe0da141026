"""One process runs tests that render and tests that optimise: what optimisers import comes before any GL context."""

from rl.agent.adam import load_optimiser

load_optimiser()
