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
VERSIONS = {
    "3.8.1": (
        "ca65b863f2402cba82761204b77f04373f8d0a8adebb286619e1e5b33d0528e9",
        "66084b9930619876ff2daa55670dee744b2d68998e180a5ffa427f82f52bdfa9",
    ),
    "3.8.2": (
        "df1de031b96489919b9b4d38ed050e434618babefb39dcdcfefd2a33a034d63c",
        "6a9b8e17bb861c28d3a037aa8bf46ebdd21ed47fa28208bac038599ed4a492c5",
    ),
    "3.8.3": (
        "9666d62d4901b39feb12ec5c2bc95028c79512c277ef7f2def4ff135c33a37c1",
        "52a86f04b3115b58856c515b7f346afd05ba0cbdb11da0195535c6a58ed9fd10",
    ),
    "3.8.4": (
        "2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97",
        "93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284",
    ),
    "3.8.5": (
        "328dd164a46e990e52af2485132352dd39815d7cd4455f3d6a1521513dd939e3",
        "d04add7e2fdd287733c9f8e0dd2ac509478d647090ef6a491f4a4f944861d7d7",
    ),
    "3.8.6": (
        "a00943a87b9c83379267ebda487be1ddb83e9997a03e59f9199338a033b71ed7",
        "640777a745364b617d05a0309cd2edc5d725d76f9d93e2b29f07561da9575efb",
    ),
    "3.8.7": (
        "fd12731eecb5d3ace48fa25f0141f011bcb13273b5dca301ff15d5409bd52a91",
        "a4980a3cd8fe0b4640326ccb4048556de66a34d0ed0c12a2380df7315de15b36",
    ),
    "3.9.0": (
        "083252ea798c3fdbe37236b48a47fe32d3ce8e4d79d6226b7890ac12b5a2228a",
        "c6b865c4931bc5f14da2a7a077a741d1aa58771afdfdd9e9204d9ec2af47577a",
    ),
    "3.9.1": (
        "9bde0f999bb437764c8821cad1107526f8f120b5e6d36f5277e93693fee6e425",
        "a542b25d2b529597b87332ba1b9c0130c915c9a8d58c1f751b570cb338f6c7d2",
    ),
    "3.9.2": (
        "07c403484808b7308529835f9ddcb5d6683a4eda5d384132c3f32d86ca282964",
        "df8c31a5f3d87a8f56a8aa03eeb35fece6a9ca2dfc4c57ee491213c7f51cc5c5",
    ),
    "3.9.3": (
        "ad6570105768d18382a762325b4460368b7089a5a77c053e682b17942e0e72b5",
        "be72e2c9099413a9878ce830b65bb22e0be755dc2a22b290550ab9e03b5b4cfa",
    ),
    "3.9.4": (
        "7bb3bb38bbddbc71424c59a7a0b170a1b2147313a84c972225ab0568dab513bf",
        "bd9750935add09b6cb920f7bcf0fa7b9a8165c45cdafd8ee1fc6808c46ec9094",
    ),
    "3.9.5": (
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    ),
    "3.9.6": (
        "09bdf93be7c0b5b7cd9fe51bee6abe424796cd5aaf75cf0c10bbd6f1273562ee",
        "74f9cb1e4ba899ecc4b816201b4afd1c63c256705bd9176393fac4071597c75f",
    ),
}
"""The versions that can be fetched: the SHA-256 of zookeeper.jar and of zookeeper-jute.jar."""


def jars_of(version: str) -> tuple[Download, ...]:
    """The jars of one of ``VERSIONS``."""
    names = ("zookeeper", "zookeeper-jute")
    own = {
        f"org/apache/zookeeper/{name}/{version}": sha256 for name, sha256 in zip(names, VERSIONS[version], strict=True)
    }
    return tuple(_download(path, sha256) for path, sha256 in {**own, **_LIBRARIES}.items())


def _download(path: str, sha256: str) -> Download:
    _, name, version = path.rsplit("/", 2)
    return Download(f"{name}.jar", f"{_CENTRAL}/{path}/{name}-{version}.jar", sha256)
