"""`merlin.core`: helpers around pandas frames."""

__version__ = "23.8.0"
