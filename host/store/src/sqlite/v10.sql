-- Version 10: what the operator's list shows of a task: its executor, and the beginning of the caller's last message. In no
-- index, so that an append which sets them writes no index. NULL in rows of before; a list reads theirs from `events`.
ALTER TABLE tasks ADD COLUMN executor TEXT;
ALTER TABLE tasks ADD COLUMN text TEXT;
