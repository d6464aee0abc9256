"""`tidemark codegen`: a source's staging views are compared with those that are there, and written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ingest.codegen import staging_files, staging_record
from ingest.codegen.staging_files import FOLDER, Found, Written
from ingest.codegen.staging_record import Record
from ingest.common.errors import UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import Source
from ingest.sources import source_kinds


@dataclass
class Codegen:
    """The command in a project.

    problem: why Spark refuses the text of a view; empty if Spark takes it. tables: only these, by name or by patterns
    as in sources.yml; none: all. force: write also over files that differ.
    """

    problem: Callable[[str], str]
    folder: Path = FOLDER
    tables: Sequence[str] = ()
    force: bool = False
    _matched: set[str] = field(default_factory=set)

    def write(self, source: Source, settings: JobSettings) -> Written:
        """Writes the views of the tables of a source that can be replicated; says so in a few lines."""
        found, record = self._found(source, settings)
        done = staging_files.write(found.views, record, self.problem, self.folder, force=self.force)
        done.lines += [f"left out {name}: {why}" for name, why in found.problems.items()]
        done.lines.append(f"{source.name}: {len(found.views)} {found.noun}, {done.unchanged} files as they were")
        return done

    def diff(self, source: Source, settings: JobSettings) -> Iterator[str]:
        """What writing over all files that differ would change, as lines of a unified diff; writes nothing."""
        found, record = self._found(source, settings)
        yield from staging_files.diff(found.views, record, self.folder)

    def check_named(self) -> None:
        """Raises UsageError if a table that was named is none of the sources that were read."""
        for each in self.tables:
            if each not in self._matched:
                raise UsageError("no source has such a table", each, "Write it as schema.table, or database.collection")

    def _found(self, source: Source, settings: JobSettings) -> tuple[Found, Record]:
        record = staging_record.read(self.folder)
        found = source_kinds.views(source, settings, record)
        views = [view for view in found.views if self._selects(view.table)]
        problems = {name: why for name, why in found.problems.items() if self._selects(name)}
        return Found(views, problems, found.noun), record

    def _selects(self, table: str) -> bool:
        matching = {each for each in self.tables if table == each or fnmatchcase(table, each)}
        self._matched |= matching
        return bool(matching or not self.tables)
