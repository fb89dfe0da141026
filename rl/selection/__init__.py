"""When synthetic experience is trusted (pacing) and which of it (admission, queues)."""
