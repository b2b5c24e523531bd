"""What measurements mean: pure statistics."""
