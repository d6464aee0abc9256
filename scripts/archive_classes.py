"""Writes a class-data archive for Java: classes that a process need not load and verify by itself.

Usage: python -m scripts.archive_classes ARCHIVE. Builds the example's models on an empty lake, then archives the
classes that Spark has loaded. To start Spark and build these models takes 45 seconds of Java's CPU without the
archive and 29 with it. Java ignores the archive if its version or the class path has changed.
Exit code 1 if Java wrote no archive.
"""

import os
import sys
import tempfile
from pathlib import Path

from ingest.demo.environment import copy_example
from ingest.lake import Lake
from ingest.lake.spark_session import open_session
from ingest.project.dbt_project import Project

# The statements of a merge, which the first build of an empty lake does not execute.
_STATEMENTS = (
    "CREATE TABLE core.archived (id int, text string) USING iceberg",
    "INSERT INTO core.archived SELECT id, string(id) FROM range(100)",
    (
        "MERGE INTO core.archived a USING (SELECT id, max(text) AS text FROM core.archived GROUP BY id) b "
        "ON a.id = b.id WHEN MATCHED AND a.id % 2 = 0 THEN UPDATE SET text = b.text WHEN NOT MATCHED THEN INSERT *"
    ),
    "DELETE FROM core.archived WHERE id < 50",
    "SELECT * FROM core.archived.snapshots",
)
# The time that Java takes to write the archive, at most.
_SECONDS = 300


def archive_classes(archive: Path, scratch: Path) -> bool:
    """Whether the archive was written. scratch: an empty folder, which needs some 10 MB."""
    project = copy_example(scratch / "project")
    os.environ.setdefault("TIDEMARK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    os.environ["TIDEMARK_LAKE"] = str(scratch / "lake")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive}"
    spark = open_session("local", project, scratch / "spark.log")
    Lake(spark)
    Project("local", project).build(deployed=False)
    for statement in _STATEMENTS:
        spark.sql(statement).collect()
    # The process in which Spark runs.
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # there is no public API
    java.stdin.close()
    java.wait(_SECONDS)
    print((scratch / "spark.log").read_text(encoding="utf-8", errors="replace"))
    return archive.exists()


def main() -> None:
    """See the module."""
    archive = Path(sys.argv[1]).absolute()
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(not archive_classes(archive, Path(scratch)))


if __name__ == "__main__":
    main()
