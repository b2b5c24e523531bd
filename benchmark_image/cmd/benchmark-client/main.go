// Command benchmark-client measures the speed of etcd.
package main

import "containernet-env/benchmark_image/internal/client"

// sourceHash names the sources that this program was built from; the build sets it.
var sourceHash = "dev"

func main() { client.Process(sourceHash) }
