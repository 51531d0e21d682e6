-- The tables of the node and its command, as a user of PostgreSQL would write them: three counters without
-- gaps, an event in two logs, and three records, in one durable transaction.

CREATE TABLE partition_offsets (
    partition int PRIMARY KEY,
    last bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE workspace_numbers (
    workspace bigint PRIMARY KEY,
    last_offset bigint NOT NULL,
    last_record bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE partition_log (
    partition int,
    place bigint,
    event bytea NOT NULL,
    PRIMARY KEY (partition, place)
);

CREATE TABLE workspace_log (
    workspace bigint,
    place bigint,
    event bytea NOT NULL,
    PRIMARY KEY (workspace, place)
);

CREATE TABLE records (
    workspace bigint,
    id bigint,
    fields bytea NOT NULL,
    PRIMARY KEY (workspace, id)
);

CREATE FUNCTION bill(ws bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    event bytea := convert_to(repeat('e', 400), 'UTF8');
    fields bytea := convert_to(repeat('r', 100), 'UTF8');
    place bigint;
    own_place bigint;
    record bigint;
BEGIN
    UPDATE workspace_numbers SET last_offset = last_offset + 1, last_record = last_record + 3
        WHERE workspace = ws RETURNING last_offset, last_record INTO own_place, record;
    INSERT INTO workspace_log VALUES (ws, own_place, event);
    INSERT INTO records VALUES (ws, record - 2, fields), (ws, record - 1, fields), (ws, record, fields);
    -- The counter of the partition comes last, so that its lock is held for the shortest time.
    UPDATE partition_offsets SET last = last + 1 WHERE partition = ws % 10 RETURNING last INTO place;
    INSERT INTO partition_log VALUES (ws % 10, place, event);
    RETURN place;
END $$;
