"""What the two sides share: messages, what carries them, slots, and the page that both map. It decides nothing."""
