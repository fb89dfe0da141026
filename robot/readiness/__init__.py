"""Is a robot ready: its cameras, feedback, motion and stops, each measured and judged."""
