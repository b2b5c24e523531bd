"""What a version of ZooKeeper is fetched as from Maven Central: its own jars, and the libraries that it needs."""

from __future__ import annotations

from containernet_env.stores.protocol import Download

_CENTRAL = "https://repo1.maven.org/maven2"
# Each with its SHA-256. Those that ZooKeeper 3.9.4's pom names; older ones of ZooKeeper run with them, too.
_LIBRARIES = {
    "io/dropwizard/metrics/metrics-core/4.1.12.1": "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    "org/xerial/snappy/snappy-java/1.1.10.5": "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    "ch/qos/logback/logback-classic/1.3.15": "06c68fb7468143c3c6512d13bb8eb6676724b019330de3a5ab493e267dde2084",
    "ch/qos/logback/logback-core/1.3.15": "90b72ec457f30f8f42a280a409ab2bc4499fec16983005d1d91015199be7047b",
    "org/slf4j/slf4j-api/2.0.13": "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9",
    "commons-io/commons-io/2.17.0": "4aa4ca48f3dfd30b78220b7881d8cb93eac4093ec94361b6befa9487998a550b",
}
_PINNED = {
    "org/apache/zookeeper/zookeeper/3.9.4": "7bb3bb38bbddbc71424c59a7a0b170a1b2147313a84c972225ab0568dab513bf",
    "org/apache/zookeeper/zookeeper-jute/3.9.4": "bd9750935add09b6cb920f7bcf0fa7b9a8165c45cdafd8ee1fc6808c46ec9094",
}


def jars_of(version: str) -> tuple[Download, ...]:
    """The jars of a version. Of one that is not pinned here, the repository's own checksum is what is compared."""
    own = {
        f"org/apache/zookeeper/{name}/{version}": _PINNED.get(f"org/apache/zookeeper/{name}/{version}")
        for name in ("zookeeper", "zookeeper-jute")
    }
    return tuple(_download(path, sha256) for path, sha256 in {**own, **_LIBRARIES}.items())


def _download(path: str, sha256: str | None) -> Download:
    _, name, version = path.rsplit("/", 2)
    return Download(f"{name}.jar", f"{_CENTRAL}/{path}/{name}-{version}.jar", sha256)
