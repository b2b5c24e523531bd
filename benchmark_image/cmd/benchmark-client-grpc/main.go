// Command benchmark-client-grpc is benchmark-client with grpc-go in it, which takes its place for --transport grpc.
package main

import (
	"containernet-env/benchmark_image/internal/client"
	_ "containernet-env/benchmark_image/internal/client/grpcgo"
)

// sourceHash names the sources that this program was built from; the build sets it.
var sourceHash = "dev"

func main() { client.Process(sourceHash) }
