// Command benchmark-client measures the speed of etcd. It has no TLS, which would make its memory larger: loads that
// ask for it are carried by benchmark-client-tls, which it looks for beside itself.
package main

import "containernet-env/benchmark_image/internal/client"

// sourceHash names the sources that this program was built from; the build sets it.
var sourceHash = "dev"

func main() { client.Process(sourceHash, nil) }
