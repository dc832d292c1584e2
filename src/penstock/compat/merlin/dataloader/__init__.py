"""`merlin.dataloader`: loaders for torch, TensorFlow and JAX."""

__version__ = "23.08.00"
