-- Version 9: the open tasks by key. Their order by status cost every change of a status two writes, and only the search for
-- stuck tasks used it; the open tasks are few.
DROP INDEX tasks_open;
CREATE INDEX tasks_open ON tasks (key) WHERE ended_at IS NULL;
