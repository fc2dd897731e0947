-- Version 4: when events were appended. 0 in rows of before, which are as old as their task's status.
--
-- The order of all appends is that of `rowid`. It has gaps where tasks were forgotten; a VACUUM by hand closes them, so
-- that whoever reads on by a number may read lines twice.
ALTER TABLE events ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
