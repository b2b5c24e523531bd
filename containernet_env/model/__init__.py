"""Pure values and pure rules: configuration and measurements, independent of files, processes and machines."""
