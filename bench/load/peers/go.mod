// The clients that ours is compared with, for stores that are spoken to over HTTP/1.1, and for ZooKeeper.
module containernet-env/bench/load/peers

go 1.26.0

require github.com/go-zookeeper/zk v1.0.4
