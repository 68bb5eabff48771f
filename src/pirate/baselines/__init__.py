"""The paper's rivals, on the project's own operators, each configured as its authors do."""
