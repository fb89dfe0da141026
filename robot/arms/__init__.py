"""Drivers of physical arms, each behind the `Arm` protocol; a vendor's SDK is imported when one connects."""
