"""etcd: its flags, timing, readiness, leader and the deaths of its members."""
