"""Actor and learner: constructors that take all they need and a bounded `step()`; a runtime decides where they run."""
