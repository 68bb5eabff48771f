"""Fixed-point solvers. They know tensors and operators, not images."""

from pirate.solvers.anderson import accelerate
from pirate.solvers.fixed_point import iterate
from pirate.solvers.schedule import constant, cosine
from pirate.solvers.solution import Observer, Operator, Record, Solution, Status

__all__ = [
    "Observer",
    "Operator",
    "Record",
    "Solution",
    "Status",
    "accelerate",
    "constant",
    "cosine",
    "iterate",
]
