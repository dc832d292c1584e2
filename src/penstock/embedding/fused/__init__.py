"""Tables on the model's device, looked up by one kernel and updated by the backward pass."""
