"""From clips to calibrated success labels; one calibration for the SAC path and the VLA path."""
