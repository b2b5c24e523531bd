"""The load generator beside etcd's own benchmark tool, on clusters of one and three members on loopback."""
