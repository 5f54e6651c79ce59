-- Creates one hash partition of the table. Partitions by time would admit the same id twice,
-- because a unique key must then include the time.
CREATE TABLE {schema}"{table}_p{part}" PARTITION OF {schema}"{table}"
FOR VALUES WITH (MODULUS {parts}, REMAINDER {part}) {storage};
