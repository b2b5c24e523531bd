"""ZooKeeper: its configuration, timing, four-letter words, readiness and leader, and a request's critical path."""
