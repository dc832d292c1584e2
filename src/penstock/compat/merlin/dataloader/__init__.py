"""`merlin.dataloader`: loaders for torch, TensorFlow and JAX."""
