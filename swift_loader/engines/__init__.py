"""Where workers live. An engine starts them and tells how they ended; what they do is no business of it."""
