-- Version 1. A released text never changes: a new one is added to the list in schema.rs.

-- One small row a task; what it holds is in `events`, and for long ones also in `snapshots`. `key` stands for owner
-- and id in the other tables, where it costs a byte or two instead of fifty.
CREATE TABLE tasks (
    key              INTEGER PRIMARY KEY,
    owner            TEXT    NOT NULL,           -- '' is everybody, where the host is open
    id               TEXT    NOT NULL,
    context          TEXT    NOT NULL,
    version          INTEGER NOT NULL,           -- sequence number of the last event
    state            TEXT    NOT NULL,
    status_at        INTEGER NOT NULL,           -- milliseconds since 1970, here and below
    created_at       INTEGER NOT NULL,
    ended_at         INTEGER,                    -- set with a terminal state
    pending          INTEGER NOT NULL,           -- turns that are not over
    snapshot_version INTEGER NOT NULL DEFAULT 0, -- 0: there is no snapshot
    UNIQUE (owner, id)
) STRICT;

-- Lists in their order; the last two columns let a count and the search for unfinished turns do without the table.
CREATE INDEX tasks_by_status ON tasks (owner, status_at, id, state, pending);
-- Without the status, so that a task which moves leaves it alone: the tasks of one context are few enough to sort.
CREATE INDEX tasks_by_context ON tasks (owner, context);
CREATE INDEX tasks_by_end ON tasks (ended_at, id, owner) WHERE ended_at IS NOT NULL;

-- The events of one append are one row.
CREATE TABLE events (
    task   INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    first  INTEGER NOT NULL,                     -- sequence number of the first of them
    count  INTEGER NOT NULL,
    events TEXT    NOT NULL,                     -- a JSON array
    PRIMARY KEY (task, first)
) STRICT;

-- A task as of `tasks.snapshot_version`; later events are folded onto it.
CREATE TABLE snapshots (
    task     INTEGER PRIMARY KEY REFERENCES tasks (key) ON DELETE CASCADE,
    snapshot TEXT NOT NULL                       -- the task as JSON
) STRICT;

-- Which task took in a caller's message.
CREATE TABLE accepted (
    owner   TEXT    NOT NULL,
    message TEXT    NOT NULL,
    task    INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    PRIMARY KEY (owner, message)
) STRICT, WITHOUT ROWID;
CREATE INDEX accepted_by_task ON accepted (task);

-- What executors remember of a conversation.
CREATE TABLE state (
    owner    TEXT NOT NULL,
    context  TEXT NOT NULL,
    executor TEXT NOT NULL,
    key      TEXT NOT NULL,
    value    BLOB NOT NULL,
    PRIMARY KEY (owner, context, executor, key)
) STRICT;
