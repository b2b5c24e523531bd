module containernet-env/tests/docker/small_proxy

go 1.26.0
