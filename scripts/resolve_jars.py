"""Fetches the jars that Spark's profile names, once, so that later starts need no network.

Usage: resolve_jars.py PROFILES_YML LIST. Reads `spark.jars.packages` of the target `local`, lets
Spark resolve it, and writes the paths of the jars to LIST, one a line. Exit code 1 when Spark
could not.
"""

import sys
import tempfile
from pathlib import Path

import yaml
from pyspark.sql import SparkSession


def packages(profiles: Path) -> str:
    """The value of `spark.jars.packages`: Maven coordinates with commas between them."""
    targets = yaml.safe_load(profiles.read_text(encoding="utf-8"))["tidemark"]["outputs"]
    return str(targets["local"]["server_side_parameters"]["spark.jars.packages"])


def resolve(coordinates: str) -> list[str]:
    """Paths of the jars of `coordinates` and of what they depend on."""
    with tempfile.TemporaryDirectory() as scratch:
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.jars.packages", coordinates)
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", scratch)
            .getOrCreate()
        )
        jars = spark.sparkContext.getConf().get("spark.jars", "")
        spark.stop()
    return [jar.removeprefix("file://") for jar in (jars or "").split(",") if jar]


def main() -> None:
    """See the module."""
    profiles, listing = map(Path, sys.argv[1:])
    jars = resolve(packages(profiles))
    listing.write_text("".join(f"{jar}\n" for jar in jars), encoding="utf-8")


if __name__ == "__main__":
    main()
