"""Where sets lie when they lie elsewhere: stores of objects, who is let in, and what asks them."""
