"""Parts of ``benchmarks/peers.py``: the plan, the processes, the measuring, the page."""
