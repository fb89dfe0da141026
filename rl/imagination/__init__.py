"""From real states to labelled imagined clips: where they start, what is done, what would have happened."""
