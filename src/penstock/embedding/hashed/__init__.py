"""Tables on the device for ids without a vocabulary: an index beside the weight, rows that come as ids do."""
