// The client that ours is compared with for stores that are spoken to over HTTP/1.1: Go's own.
module containernet-env/bench/load/nethttp

go 1.26.0
