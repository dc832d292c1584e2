"""`nvtabular.loader`: loaders for torch and TensorFlow."""
