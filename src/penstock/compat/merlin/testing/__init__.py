"""`merlin.testing`: frames and tables compared."""
