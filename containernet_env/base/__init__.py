"""What every room may use: errors, units, the protocol by which a run tells its progress."""
