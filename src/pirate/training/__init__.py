"""Learning: the one training loop of the project, and the tasks that run in it."""
