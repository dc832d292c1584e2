"""Click logs to a trained recommender at full pressure."""
