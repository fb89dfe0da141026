"""A cheap score kept honest by a few real outcomes; the same objects serve the SAC path and the VLA path."""
