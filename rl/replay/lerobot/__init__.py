"""LeRobot datasets (v3.0 and v2.1) in and out of the replay store; pyarrow and PyAV only."""
