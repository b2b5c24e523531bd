// A small replicated key-value service: an example to measure, not a product. It needs the standard library alone.
module containernet-env/replicas_image

go 1.26.0
