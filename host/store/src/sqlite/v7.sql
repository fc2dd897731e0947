-- Version 7: tasks that the agent gave to other agents. Few rows, each written a few times; they are read at the start.
CREATE TABLE delegations (
    key         INTEGER PRIMARY KEY,             -- in the order in which they were made
    id          TEXT    NOT NULL UNIQUE,
    target      TEXT    NOT NULL,
    target_name TEXT    NOT NULL,
    task        TEXT    NOT NULL,
    context     TEXT,
    state       TEXT    NOT NULL,
    remote      TEXT,                            -- the receiver's id
    result      TEXT,
    created     INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    ended       INTEGER,
    message     TEXT,                            -- the message that tells the result
    told        INTEGER
) STRICT;
