"""What a batch is: its structure, where its bytes lie, and the two ways into a slot and out again."""
