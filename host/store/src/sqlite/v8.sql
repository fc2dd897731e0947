-- Version 8: the turn that delegated, whose task is held open until the result is there.
ALTER TABLE delegations ADD COLUMN turn_owner TEXT;
ALTER TABLE delegations ADD COLUMN turn_task  TEXT;
