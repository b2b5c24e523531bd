"""The proof that the network is the one that was configured."""
