"""`merlin.core`: helpers around pandas frames."""
