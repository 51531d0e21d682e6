-- The command of the node, as users of PostgreSQL would write it, in two ways. Each is one durable
-- transaction. It writes about as many bytes as the command of a node over HTTP. The functions make
-- the bytes themselves, so that no client has to send them.

-- 1. Without gaps, as the node: three counters, an event in two logs, and the records.

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

CREATE FUNCTION gapless(ws bigint, count int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    event bytea := convert_to(repeat('e', 100 + 70 * count), 'UTF8');
    fields bytea := convert_to(repeat('r', 100), 'UTF8');
    place bigint;
    own_place bigint;
    record bigint;
BEGIN
    UPDATE workspace_numbers SET last_offset = last_offset + 1, last_record = last_record + count
        WHERE workspace = ws RETURNING last_offset, last_record INTO own_place, record;
    INSERT INTO workspace_log VALUES (ws, own_place, event);
    INSERT INTO records
        SELECT ws, record - number, fields FROM generate_series(0, count - 1) number;
    -- The counter of the partition comes last, so that its lock is held for the shortest time.
    UPDATE partition_offsets SET last = last + 1
        WHERE partition = ws % 10 RETURNING last INTO place;
    INSERT INTO partition_log VALUES (ws % 10, place, event);
    RETURN place;
END $$;

-- 2. With sequences, which leave gaps: an event in one table with an index for its workspace, and
-- the records. No transaction waits for the numbers of another one.

CREATE TABLE events (
    place bigserial PRIMARY KEY,
    workspace bigint NOT NULL,
    event bytea NOT NULL
);

CREATE INDEX ON events (workspace, place);

CREATE TABLE numbered_records (
    workspace bigint,
    id bigserial,
    fields bytea NOT NULL,
    PRIMARY KEY (workspace, id)
);

CREATE FUNCTION sequence(ws bigint, count int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    fields bytea := convert_to(repeat('r', 100), 'UTF8');
    place bigint;
BEGIN
    INSERT INTO events (workspace, event)
        VALUES (ws, convert_to(repeat('e', 100 + 70 * count), 'UTF8'))
        RETURNING events.place INTO place;
    INSERT INTO numbered_records (workspace, fields)
        SELECT ws, fields FROM generate_series(1, count);
    RETURN place;
END $$;
