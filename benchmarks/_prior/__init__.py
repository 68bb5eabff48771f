"""The parts of `benchmarks/prior.py`."""
