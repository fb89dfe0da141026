"""Cameras beside a physical arm: vendor library -> newest frame -> the views that a policy sees."""
