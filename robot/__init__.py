"""The physical or simulated world: arms, cameras, human correction, safety, and the 10 Hz environment."""
