//! The table, and how rows are found in it.

use crate::sqlite::Format;

/// Approvals: `PCLA`.
pub(super) const FORMAT: Format<'static> = Format {
    application: 0x5043_4c41,
    migrations: &[FIRST],
};

const FIRST: &[&str] = &[
    // `approval` is all of it, as JSON; what is beside it is for finding, and made from it.
    //
    // Time changes how an approval stands: it is `status`, from `until` on `later`, and from `lapses` on expired, where
    // silence meant yes and nobody used it. Moments are in nanoseconds. From `over` on nothing but a no can come of it.
    "CREATE TABLE approval (
        id TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        created INTEGER NOT NULL,
        status TEXT NOT NULL,
        until INTEGER,
        later TEXT,
        lapses INTEGER,
        taken INTEGER,
        over INTEGER,
        approval TEXT NOT NULL,
        CHECK ((until IS NULL) = (later IS NULL)),
        CHECK (lapses IS NULL OR lapses >= until)
    ) STRICT",
    "CREATE INDEX approval_created ON approval (created, id)",
    "CREATE INDEX approval_run ON approval (run_id, created, id)",
    "CREATE INDEX approval_status ON approval (status, created, id, until)",
    "CREATE INDEX approval_later ON approval (later, created, id, until, lapses) WHERE later IS NOT NULL",
    "CREATE INDEX approval_lapses ON approval (created, id, lapses) WHERE lapses IS NOT NULL",
    "CREATE INDEX approval_over ON approval (over) WHERE over IS NOT NULL",
    "CREATE INDEX approval_settled ON approval (created, id, taken, status, later, until, lapses) WHERE over IS NOT NULL",
];
