"""How good is a registration? Overlap of labels, distances of surfaces and points, folding of the field."""
