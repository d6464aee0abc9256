"""`tidemark codegen`: compares a source's staging views with the existing files, and writes them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ingest.codegen import staging_files, staging_record
from ingest.codegen.staging_files import FOLDER, SourceViews, WriteResult
from ingest.codegen.staging_record import Record
from ingest.common.errors import UsageError
from ingest.config.job_settings import JobSettings
from ingest.config.sources_file import Source, including_patterns, is_excluded
from ingest.sources import source_kinds


@dataclass
class Codegen:
    """The command in a project.

    problem: returns why Spark rejects the text of a view; empty if it accepts it. tables: only these, by name or by
    patterns as in sources.yml; none: all. force: also overwrite files that differ.
    """

    problem: Callable[[str], str]
    folder: Path = FOLDER
    tables: Sequence[str] = ()
    force: bool = False
    _matched_patterns: set[str] = field(default_factory=set)

    def write(self, source: Source, settings: JobSettings) -> WriteResult:
        """Writes the views of a source's replicable tables; the result has lines to print."""
        source_views, record = self._list_views(source, settings)
        result = staging_files.write_views(source_views.views, record, self.problem, self.folder, force=self.force)
        result.lines += [f"skipped {name}: {reason}" for name, reason in source_views.problems.items()]
        result.lines.append(
            f"{source.name}: {len(source_views.views)} {source_views.noun}, {result.unchanged} files unchanged"
        )
        return result

    def diff(self, source: Source, settings: JobSettings) -> Iterator[str]:
        """What overwriting all differing files would change, as lines of a unified diff; writes nothing."""
        source_views, record = self._list_views(source, settings)
        yield from staging_files.diff_views(source_views.views, record, self.folder)

    def check_tables_exist(self) -> None:
        """Raises UsageError if a given table matches none of the sources read so far."""
        for table in including_patterns(self.tables):
            if table not in self._matched_patterns:
                raise UsageError(
                    "no source has such a table", table, "Write it as schema.table, or database.collection"
                )

    def _list_views(self, source: Source, settings: JobSettings) -> tuple[SourceViews, Record]:
        record = staging_record.read_record(self.folder)
        source_views = source_kinds.read_staging_views(source, settings, record)
        views = [view for view in source_views.views if self._selects(view.table)]
        problems = {name: reason for name, reason in source_views.problems.items() if self._selects(name)}
        return SourceViews(views, problems, source_views.noun), record

    def _selects(self, table: str) -> bool:
        """Whether the given names and patterns select a table, as in sources.yml; none selects all."""
        matching_patterns = {
            pattern for pattern in including_patterns(self.tables) if table == pattern or fnmatchcase(table, pattern)
        }
        self._matched_patterns |= matching_patterns
        return not self.tables or (bool(matching_patterns) and not is_excluded(table, self.tables))
