-- Version 2: hooks, which are told what happens to a task.

CREATE TABLE hooks (
    task        INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    id          TEXT    NOT NULL,
    hook        TEXT    NOT NULL,                -- as JSON, with its credentials
    cursor      INTEGER NOT NULL,                -- the last event that was delivered, or that needs none
    given_up_at INTEGER,                         -- set when nothing more is tried
    given_up    TEXT,                            -- why, as JSON
    PRIMARY KEY (task, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX hooks_by_end ON hooks (given_up_at) WHERE given_up_at IS NOT NULL;

-- Tasks that have not ended, by the time of their status.
CREATE INDEX tasks_open ON tasks (status_at) WHERE ended_at IS NULL;
