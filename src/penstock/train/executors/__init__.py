"""How steps are taken: overlapped with embeddings on the host, or compiled and captured on the device."""
