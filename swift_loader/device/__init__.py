"""Where a batch goes: from a slot to tensors that the consumer works with."""
