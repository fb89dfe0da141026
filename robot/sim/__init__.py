"""The MuJoCo stand-in: an A1X-like arm, its cameras and tasks behind the contracts of the real devices."""
