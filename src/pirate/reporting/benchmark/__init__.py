"""The figures and pages of a benchmark."""

from pirate.reporting.benchmark.drawing import draw
from pirate.reporting.benchmark.markdown import write_markdown
from pirate.reporting.benchmark.page import write_page
from pirate.reporting.benchmark.style import Figure

__all__ = ["Figure", "draw", "write_markdown", "write_page"]
