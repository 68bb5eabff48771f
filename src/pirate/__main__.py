"""``python -m pirate`` is ``pirate``."""

from pirate.cli import main

main()
