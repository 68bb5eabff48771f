"""From two images to a `Registration`: the operator of eq. (6), the entry `register`, and `apply`."""
