"""From real clips to imagined futures: models, their adaptation and their honest evaluation."""
