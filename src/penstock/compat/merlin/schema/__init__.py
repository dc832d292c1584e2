"""`merlin.schema`: columns with tags, dtypes and properties."""
