-- Version 3: replies that turns expect out of band, and what came for them.

CREATE TABLE expected (
    key       INTEGER PRIMARY KEY,
    message   TEXT    NOT NULL UNIQUE,  -- the id that the upstream was given
    chat      TEXT,                     -- the upstream's chat that it belongs to
    owner     TEXT    NOT NULL,         -- the task; not a reference, since a late reply outlives it
    task      TEXT    NOT NULL,
    executor  TEXT    NOT NULL,
    at        INTEGER NOT NULL,         -- milliseconds since 1970, here and below
    closed_at INTEGER                   -- when it was withdrawn
) STRICT;

-- In the order in which they came.
CREATE TABLE letters (
    number   INTEGER PRIMARY KEY,
    expected INTEGER NOT NULL REFERENCES expected (key) ON DELETE CASCADE,
    is_reply INTEGER NOT NULL,          -- 0 or 1, here and below
    is_late  INTEGER NOT NULL,          -- it came after `closed_at`
    digest   BLOB    NOT NULL,
    at       INTEGER NOT NULL,
    body     BLOB    NOT NULL
) STRICT;
CREATE INDEX letters_by_expected ON letters (expected);
