"""The 20-program experiment: what a judge of code costs, what it misses, and what a tenth of real tests puts right."""
