-- Version 6: how many bytes each task takes, and finished tasks by owner, so that each owner can be held to its share.

-- The bytes of the task's events as they are stored. What an owner has in all is not stored: the writer counts it, from the
-- sums that it reads when it opens the file.
ALTER TABLE tasks ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE tasks SET bytes = (SELECT coalesce(sum(octet_length(events)), 0) FROM events WHERE task = key);

DROP INDEX tasks_by_end;
CREATE INDEX tasks_by_end ON tasks (owner, ended_at, id) WHERE ended_at IS NOT NULL;
