"""`merlin.table`: columns of tensors by name."""
