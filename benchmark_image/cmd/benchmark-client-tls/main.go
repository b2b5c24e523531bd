// Command benchmark-client-tls is benchmark-client with TLS.
package main

import (
	"containernet-env/benchmark_image/internal/client"
	"containernet-env/benchmark_image/internal/secure"
)

// sourceHash names the sources that this program was built from; the build sets it.
var sourceHash = "dev"

func main() { client.Process(sourceHash, secure.Files) }
