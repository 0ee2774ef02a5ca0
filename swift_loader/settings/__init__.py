"""What was asked for: the only place where what a user says is checked."""
