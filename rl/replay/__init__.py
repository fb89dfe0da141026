"""Replay: every step is on disk before it is learnt from. store -> sampler -> mixer -> rl.batch.Batch."""
