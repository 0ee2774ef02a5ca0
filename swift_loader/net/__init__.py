"""What one machine says to another: frames, keys, connections. It decides nothing, and knows of no loader."""
