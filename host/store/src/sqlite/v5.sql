-- Version 5: a message is taken in once, and who made the id of a conversation.

-- What was taken in before cannot be brought over: there is no record of the context and the task that a message named. A
-- message from before the upgrade that is sent again after it is a new one.
DROP TABLE accepted;
CREATE TABLE accepted (
    owner   TEXT    NOT NULL,
    message TEXT    NOT NULL,                    -- the caller's id for it
    digest  BLOB    NOT NULL,                    -- SHA-256 of what the caller wrote, see `Once`
    task    INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    PRIMARY KEY (owner, message, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX accepted_by_task ON accepted (task);

-- 1 where the host made the id of the context. Tasks that are created later in the same context inherit it, so that it
-- outlasts the first task. `tasks_by_context` of version 1 ends with `key`, so it also has the tasks of a conversation in
-- their order.
ALTER TABLE tasks ADD COLUMN host_made INTEGER NOT NULL DEFAULT 0;
