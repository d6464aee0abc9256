"""`tidemark check`."""

import sys

import click

from ingest.cli import options
from ingest.config.sources_file import load


@click.command()
@options.SOURCES
@options.TARGET
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too, as for CI.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def check(sources: str, target: str | None, strict: bool, as_json: bool) -> None:
    """Find problems before they occur, and how to fix them.

    Checks permissions, wal_level, replica identities, versions, the Spark profile, the catalog and definitions. Changes
    nothing in the sources; the catalog is tested in a scratch namespace, which is removed. Exit code 1 if a finding is
    an error; a table that can't be replicated and that nothing requires is a warning. Each line of --json is an object
    with level (error, warning, ok), source (null if the finding concerns none), subject, message and fix.
    """
    from ingest.commands.check import check_all
    from ingest.common import findings

    all_findings = check_all(load(sources), target)
    for line in [finding.to_json() for finding in all_findings] if as_json else findings.format_findings(all_findings):
        click.echo(line)
    failing_levels = {"error", "warning"} if strict else {"error"}
    if any(finding.level in failing_levels for finding in all_findings):
        sys.exit(1)
