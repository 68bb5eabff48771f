"""``python -m pirate.cli`` is ``pirate``."""

from pirate.cli import main

main()
