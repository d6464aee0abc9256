"""Changes of keys, replica identities and names, permanent and temporary."""

from tests.harness.alterations import FULL, ORDERS, Alteration, Outcome, Step, alter_between_updates, alter_once

_CHANGED_IDENTITIES = tuple(
    Alteration(
        name,
        ORDERS,
        (
            Step(
                (
                    "update {t} set note = 'before' where id < 3",
                    ddl,
                    "update {t} set note = 'after' where id > 3; delete from {t} where id = 1",
                ),
                Outcome.NEW_GENERATION,
            ),
            Step(("update {t} set note = 'last' where id = 5",), Outcome.SAME),
        ),
    )
    for name, ddl in {
        "identity from default to full": "alter table {t} replica identity full",
        "identity from default to an index": (
            "create unique index {t}_u on {t} (n); alter table {t} alter n set not null;"
            "alter table {t} replica identity using index {t}_u"
        ),
        "a key of other columns": ("alter table {t} drop constraint {t}_pkey; alter table {t} add primary key (n, id)"),
    }.items()
)


IDENTITIES = (
    *_CHANGED_IDENTITIES,
    Alteration(
        "identity switched and switched back, with a poll after each",
        ORDERS,
        (
            Step(("alter table {t} replica identity full",), Outcome.NEW_GENERATION),
            Step(
                ("delete from {t} where id = 1", "alter table {t} replica identity default"), Outcome.FIRST_GENERATION
            ),
        ),
    ),
    *(
        alter_once(
            f"{subject} switched and switched back between two polls", (change, inserted, back), Outcome.RESNAPSHOT
        )
        for subject, change, inserted, back in (
            (
                "identity",
                "alter table {t} replica identity full",
                "insert into {t} values (77, 'x', 7)",
                "alter table {t} replica identity default",
            ),
            (
                "name",
                "alter table {t} rename to {t}_other",
                "insert into {t}_other values (77, 'x', 7)",
                "alter table {t}_other rename to {t}",
            ),
            (
                "key",
                "alter table {t} drop constraint {t}_pkey",
                "insert into {t} values (77, 'x', 7)",
                "alter table {t} add primary key (id)",
            ),
            (
                "column",
                "alter table {t} rename n to m",
                "insert into {t} values (77, 'x', 7)",
                "alter table {t} rename m to n",
            ),
        )
    ),
    alter_once(
        "a key swapped in several steps between two polls",
        (
            "alter table {t} drop constraint {t}_pkey; insert into {t} values (77, 'x', 1)",
            "alter table {t} replica identity full; update {t} set n = 5 where id = 77",
            "alter table {t} add primary key (id); alter table {t} replica identity default",
        ),
        Outcome.EQUAL,
    ),
    alter_once(
        "duplicates inserted and deleted without a key delete no other row",
        (
            "alter table {t} drop constraint {t}_pkey",
            "insert into {t} values (1, 'loaded twice', 0)",
            "delete from {t} where note = 'loaded twice'",
            "alter table {t} add primary key (id)",
        ),
        Outcome.EQUAL,
        FULL,
    ),
    *(
        alter_between_updates(ddl, Outcome.SAME, FULL)
        for ddl in ("vacuum full {t}", "reindex table {t}", "reindex table concurrently {t}")
    ),
)
